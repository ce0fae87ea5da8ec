// What IPluginRegistry::loadLibrary looks for in a plugin library.
#include "creator.h"
#include "log.h"

#include <memory>

namespace
{

//! One creator per operator, made at the first call and kept: the registry holds on to their addresses.
std::vector<std::unique_ptr<gaussport::PluginCreator>> makeCreators()
{
    std::vector<std::unique_ptr<gaussport::PluginCreator>> creators;
    for (auto& schema : gaussport::operators())
    {
        creators.push_back(std::make_unique<gaussport::PluginCreator>(std::move(schema)));
    }
    return creators;
}

} // namespace

#define GAUSSPORT_EXPORT __attribute__((visibility("default")))

extern "C" GAUSSPORT_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static auto const kOWNED = makeCreators();
    static auto const kCREATORS = [] {
        std::vector<nvinfer1::IPluginCreatorInterface*> pointers;
        pointers.reserve(kOWNED.size());
        for (auto const& creator : kOWNED)
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
