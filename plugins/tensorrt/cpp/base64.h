// Base64, in which a kernel package is written as an ONNX attribute: tools for ONNX take strings to be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gaussport
{

//! The bytes that `text` stands for. Zeros at its end are left out: TensorRT's parser adds one.
//! Throws Error when a character or the length is impossible.
std::vector<uint8_t> decodeBase64(char const* text, std::size_t length);

} // namespace gaussport
