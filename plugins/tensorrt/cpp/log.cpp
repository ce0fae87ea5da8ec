#include "log.h"

#include <atomic>
#include <cstdio>

namespace gaussport
{
namespace
{

std::atomic<nvinfer1::ILoggerFinder*>& loggerFinder() noexcept
{
    static std::atomic<nvinfer1::ILoggerFinder*> finder{nullptr};
    return finder;
}

} // namespace

void setLoggerFinder(nvinfer1::ILoggerFinder* finder) noexcept
{
    loggerFinder().store(finder);
}

void log(Severity severity, std::string const& message) noexcept
{
    nvinfer1::ILoggerFinder* const finder = loggerFinder().load();
    nvinfer1::ILogger* const logger = finder == nullptr ? nullptr : finder->findLogger();
    if (logger != nullptr)
    {
        logger->log(severity, message.c_str());
    }
    else if (severity <= Severity::kERROR)
    {
        static_cast<void>(std::fprintf(stderr, "gaussport: %s\n", message.c_str()));
    }
}

} // namespace gaussport
