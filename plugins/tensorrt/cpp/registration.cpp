// The way into TensorRT's registry for hosts that load engines but no plugin libraries, such as ONNX Runtime.
#include "creator.h"
#include "error.h"
#include "guard.h"

#include <string>
#include <string_view>

namespace gaussport
{

//! TensorRT-RTX's registry: TensorRT's without the four functions for IPluginV2, which RTX never had. Only what comes before
//! the last function that is called here is declared; a test registers with the real one.
//! Not in the unnamed namespace: a compiler that sees every derived class, and finds none, may assume that no object exists.
class RtxPluginRegistry
{
public:
    virtual ~RtxPluginRegistry() noexcept = default;
    virtual void setErrorRecorder(nvinfer1::IErrorRecorder* recorder) noexcept = 0;
    virtual nvinfer1::IErrorRecorder* getErrorRecorder() const noexcept = 0;
    virtual bool isParentSearchEnabled() const = 0;
    virtual void setParentSearchEnabled(bool enabled) = 0;
    virtual void* loadLibrary(nvinfer1::AsciiChar const* path) noexcept = 0;
    virtual void deregisterLibrary(void* handle) noexcept = 0;
    virtual bool registerCreator(
        nvinfer1::IPluginCreatorInterface& creator, nvinfer1::AsciiChar const* pluginNamespace) noexcept = 0;
    virtual nvinfer1::IPluginCreatorInterface* const* getAllCreators(int32_t* count) const noexcept = 0;
};

namespace
{

//! Whether the registry has a creator of this name, version and namespace: ours, or that of another copy of this library.
template <typename Registry>
bool isRegistered(Registry const& registry, PluginCreator const& creator)
{
    int32_t count{0};
    auto const* const all = registry.getAllCreators(&count);
    for (int32_t i = 0; i < count; ++i)
    {
        if (std::string_view(all[i]->getInterfaceInfo().kind) != creator.getInterfaceInfo().kind)
        {
            continue;
        }
        auto const& other = static_cast<nvinfer1::IPluginCreatorV3One const&>(*all[i]);
        if (std::string_view(other.getPluginName()) == creator.getPluginName()
            && std::string_view(other.getPluginVersion()) == creator.getPluginVersion()
            && std::string_view(other.getPluginNamespace()) == creator.getPluginNamespace())
        {
            return true;
        }
    }
    return false;
}

template <typename Registry>
int32_t registerAll(Registry* registry)
{
    if (registry == nullptr)
    {
        throw Error("TensorRT has no plugin registry");
    }
    for (auto const& creator : creators())
    {
        if (!isRegistered(*registry, *creator) && !registry->registerCreator(*creator, creator->getPluginNamespace()))
        {
            throw Error("TensorRT refuses the creator of " + std::string(creator->getPluginName()));
        }
    }
    return kSUCCESS;
}

} // namespace
} // namespace gaussport

//! Add every creator to a registry; one that is there already is left as it is. `getPluginRegistry` is the function of that
//! name in the host's TensorRT or TensorRT-RTX, `major` that library's major version. 0 is success.
extern "C" __attribute__((visibility("default"))) int32_t gaussport_register_plugins(
    void* (*getPluginRegistry)(), int32_t major)
{
    using namespace gaussport;
    return guarded("gaussport", "register_plugins", kFAILURE, [&] {
        if (major == NV_TENSORRT_MAJOR)
        {
            return registerAll(static_cast<nvinfer1::IPluginRegistry*>(getPluginRegistry()));
        }
        if (major == 1)
        {
            return registerAll(static_cast<RtxPluginRegistry*>(getPluginRegistry()));
        }
        throw Error("the host has TensorRT " + std::to_string(major) + ", but this library was built for TensorRT "
            + std::to_string(NV_TENSORRT_MAJOR) + " and TensorRT-RTX 1: build it with that TensorRT's headers");
    });
}
