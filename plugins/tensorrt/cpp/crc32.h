// CRC-32 as zlib computes it: tells a damaged kernel package from a whole one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gaussport
{

uint32_t crc32(uint8_t const* bytes, std::size_t size);

} // namespace gaussport
