// The one thing that is global in this library: where its messages go.
#pragma once

#include "tensorrt.h"

#include <string>

namespace gaussport
{

using Severity = nvinfer1::ILogger::Severity;

//! Where TensorRT says its logger is found. Errors go to stderr until it has said so.
void setLoggerFinder(nvinfer1::ILoggerFinder* finder) noexcept;

void log(Severity severity, std::string const& message) noexcept;

} // namespace gaussport
