// TensorRT's interfaces, without the warnings that they give about their own deprecated parts.
#pragma once

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
#include <NvInferRuntime.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#include <string>

namespace gaussport
{

//! TensorRT's own word for a type, such as "HALF".
std::string nameOf(nvinfer1::DataType type);

} // namespace gaussport
