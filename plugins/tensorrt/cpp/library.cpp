// What IPluginRegistry::loadLibrary looks for in a plugin library.
#include "creator.h"
#include "log.h"

#define GAUSSPORT_EXPORT __attribute__((visibility("default")))

extern "C" GAUSSPORT_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static auto const kCREATORS = [] {
        std::vector<nvinfer1::IPluginCreatorInterface*> pointers;
        for (auto const& creator : gaussport::creators())
        {
            pointers.push_back(creator.get());
        }
        return pointers;
    }();
    nbCreators = static_cast<int32_t>(kCREATORS.size());
    return kCREATORS.data();
}

extern "C" GAUSSPORT_EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder* finder)
{
    gaussport::setLoggerFinder(finder);
}
