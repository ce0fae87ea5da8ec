// TensorRT's door: no exception passes it; what was thrown is logged as one sentence and answered by a failure code.
#pragma once

#include "error.h"
#include "log.h"

#include <exception>
#include <string>

namespace gaussport
{

constexpr int32_t kSUCCESS = 0;
constexpr int32_t kFAILURE = -1;

//! Run `body` and return what it returns, or log what it throws, headed by who did what, and return `failure`.
template <typename Result, typename Body>
Result guarded(std::string const& who, char const* what, Result failure, Body&& body) noexcept
{
    try
    {
        return body();
    }
    catch (std::exception const& error)
    {
        log(Severity::kERROR, who + "::" + what + ": " + error.what());
    }
    catch (...)
    {
        log(Severity::kERROR, who + "::" + what + ": an exception of unknown type");
    }
    return failure;
}

} // namespace gaussport
