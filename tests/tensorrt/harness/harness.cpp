#include "harness.h"

#include "tensorrt.h"

#include <algorithm>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace
{

using namespace nvinfer1;

class CollectingLogger final : public ILogger
{
public:
    void log(Severity severity, AsciiChar const* message) noexcept override
    {
        std::lock_guard<std::mutex> const lock(mMutex);
        mLines += std::to_string(static_cast<int32_t>(severity)) + " " + message + "\n";
    }

    char const* take()
    {
        std::lock_guard<std::mutex> const lock(mMutex);
        mTaken.swap(mLines);
        mLines.clear();
        return mTaken.c_str();
    }

private:
    std::mutex mMutex;
    std::string mLines;
    std::string mTaken;
};

class LoggerFinder final : public ILoggerFinder
{
public:
    ILogger* findLogger() override
    {
        return &mLogger;
    }

    CollectingLogger& logger()
    {
        return mLogger;
    }

private:
    CollectingLogger mLogger;
};

LoggerFinder& finder()
{
    static LoggerFinder instance;
    return instance;
}

std::vector<IPluginCreatorV3One*>& creators()
{
    static std::vector<IPluginCreatorV3One*> instance;
    return instance;
}

//! A dimension of a network that is being built: known, or -1.
class Dimension final : public IDimensionExpr
{
public:
    explicit Dimension(int64_t extent)
        : mValue(extent)
    {
        mImpl = &mValue;
    }

    ~Dimension() noexcept override = default;

    int64_t extent() const
    {
        return mValue.getConstantValue();
    }

private:
    class Value final : public apiv::VDimensionExpr
    {
    public:
        explicit Value(int64_t extent)
            : mExtent(extent)
        {
        }

        bool isConstant() const override
        {
            return mExtent >= 0;
        }

        int64_t getConstantValue() const override
        {
            return mExtent;
        }

        bool isSizeTensor() const override
        {
            return false;
        }

    private:
        int64_t mExtent;
    };

    Value mValue;
};

//! Output shapes of our operators are input shapes: whoever computes with dimensions fails at once.
class NoExpressions final : public IExprBuilder
{
public:
    NoExpressions()
    {
        mImpl = nullptr;
    }

    ~NoExpressions() noexcept override = default;
};

IPluginV3* cast(void* plugin)
{
    return static_cast<IPluginV3*>(plugin);
}

IPluginV3OneBuild* build(void* plugin)
{
    return static_cast<IPluginV3OneBuild*>(cast(plugin)->getCapabilityInterface(PluginCapabilityType::kBUILD));
}

IPluginV3OneRuntime* runtime(void* plugin)
{
    return static_cast<IPluginV3OneRuntime*>(cast(plugin)->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
}

Dims dims(HarnessTensor const& tensor, int64_t const* extents)
{
    Dims result{};
    result.nbDims = tensor.rank;
    std::copy_n(extents, tensor.rank, result.d);
    return result;
}

PluginTensorDesc description(HarnessTensor const& tensor)
{
    return {dims(tensor, tensor.dims), static_cast<DataType>(tensor.type), static_cast<TensorFormat>(tensor.format), 1.0F};
}

std::vector<PluginTensorDesc> descriptions(HarnessTensor const* tensors, int32_t count)
{
    std::vector<PluginTensorDesc> result;
    std::transform(tensors, tensors + count, std::back_inserter(result), description);
    return result;
}

std::vector<DynamicPluginTensorDesc> dynamicDescriptions(HarnessTensor const* tensors, int32_t count)
{
    std::vector<DynamicPluginTensorDesc> result;
    std::transform(tensors, tensors + count, std::back_inserter(result), [](HarnessTensor const& tensor) {
        return DynamicPluginTensorDesc{
            description(tensor), dims(tensor, tensor.min), dims(tensor, tensor.max), dims(tensor, tensor.dims)};
    });
    return result;
}

} // namespace

int32_t harnessLoad(char const* path)
{
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
    {
        finder().logger().log(ILogger::Severity::kERROR, dlerror());
        return -1;
    }
    auto const setFinder = reinterpret_cast<void (*)(ILoggerFinder*)>(dlsym(library, "setLoggerFinder"));
    auto const getCreators
        = reinterpret_cast<IPluginCreatorInterface* const* (*) (int32_t&)>(dlsym(library, "getCreators"));
    setFinder(&finder());
    int32_t count = 0;
    auto const* const found = getCreators(count);
    creators().clear();
    for (int32_t i = 0; i < count; ++i)
    {
        auto const info = found[i]->getInterfaceInfo();
        if (std::string(info.kind) == "PLUGIN CREATOR_V3ONE")
        {
            creators().push_back(static_cast<IPluginCreatorV3One*>(found[i]));
        }
    }
    return static_cast<int32_t>(creators().size());
}

char const* harnessTakeLog()
{
    return finder().logger().take();
}

char const* harnessCreatorName(int32_t creator)
{
    return creators()[static_cast<std::size_t>(creator)]->getPluginName();
}

char const* harnessCreatorVersion(int32_t creator)
{
    return creators()[static_cast<std::size_t>(creator)]->getPluginVersion();
}

char const* harnessCreatorNamespace(int32_t creator)
{
    return creators()[static_cast<std::size_t>(creator)]->getPluginNamespace();
}

namespace
{

int32_t copyFields(PluginFieldCollection const* collection, HarnessField* fields, int32_t most)
{
    if (collection == nullptr)
    {
        return -1;
    }
    for (int32_t i = 0; i < std::min(most, collection->nbFields); ++i)
    {
        auto const& field = collection->fields[i];
        fields[i] = {field.name, field.data, static_cast<int32_t>(field.type), field.length};
    }
    return collection->nbFields;
}

} // namespace

int32_t harnessCreatorFields(int32_t creator, HarnessField* fields, int32_t most)
{
    return copyFields(creators()[static_cast<std::size_t>(creator)]->getFieldNames(), fields, most);
}

void* harnessCreate(int32_t creator, char const* node, HarnessField const* fields, int32_t nbFields, int32_t phase)
{
    std::vector<PluginField> list;
    std::transform(fields, fields + nbFields, std::back_inserter(list), [](HarnessField const& field) {
        return PluginField(field.name, field.data, static_cast<PluginFieldType>(field.type), field.length);
    });
    PluginFieldCollection const collection{nbFields, list.data()};
    return creators()[static_cast<std::size_t>(creator)]->createPlugin(node, &collection, static_cast<TensorRTPhase>(phase));
}

void* harnessClone(void* plugin)
{
    return cast(plugin)->clone();
}

void* harnessAttach(void* plugin)
{
    return runtime(plugin)->attachToContext(nullptr);
}

void harnessDestroy(void* plugin)
{
    delete cast(plugin);
}

char const* harnessPluginName(void* plugin)
{
    auto* const core = cast(plugin)->getCapabilityInterface(PluginCapabilityType::kCORE);
    return static_cast<IPluginV3OneCore*>(core)->getPluginName();
}

char const* harnessPluginMetadata(void* plugin)
{
    return build(plugin)->getMetadataString();
}

int32_t harnessOutputType(void* plugin, int32_t const* types, int32_t nbInputs, int32_t* outputType)
{
    std::vector<DataType> inputs;
    std::transform(types, types + nbInputs, std::back_inserter(inputs), [](int32_t type) { return static_cast<DataType>(type); });
    DataType output{};
    int32_t const status = build(plugin)->getOutputDataTypes(&output, 1, inputs.data(), nbInputs);
    *outputType = static_cast<int32_t>(output);
    return status;
}

int32_t harnessOutputShape(void* plugin, HarnessTensor const* inputs, int32_t nbInputs, HarnessTensor* output)
{
    std::vector<std::unique_ptr<Dimension>> owned;
    std::vector<DimsExprs> shapes;
    for (int32_t i = 0; i < nbInputs; ++i)
    {
        DimsExprs shape{};
        shape.nbDims = inputs[i].rank;
        for (int32_t axis = 0; axis < shape.nbDims; ++axis)
        {
            owned.push_back(std::make_unique<Dimension>(inputs[i].dims[axis]));
            shape.d[axis] = owned.back().get();
        }
        shapes.push_back(shape);
    }
    NoExpressions builder;
    DimsExprs result{};
    int32_t const status = build(plugin)->getOutputShapes(shapes.data(), nbInputs, nullptr, 0, &result, 1, builder);
    output->rank = result.nbDims;
    for (int32_t axis = 0; axis < result.nbDims; ++axis)
    {
        output->dims[axis] = static_cast<Dimension const*>(result.d[axis])->extent();
    }
    return status;
}

int32_t harnessSupportsFormat(void* plugin, int32_t position, HarnessTensor const* tensors, int32_t nbInputs)
{
    auto const all = dynamicDescriptions(tensors, nbInputs + 1);
    return build(plugin)->supportsFormatCombination(position, all.data(), nbInputs, 1) ? 1 : 0;
}

int32_t harnessConfigure(void* plugin, HarnessTensor const* tensors, int32_t nbInputs)
{
    auto const all = dynamicDescriptions(tensors, nbInputs + 1);
    return build(plugin)->configurePlugin(all.data(), nbInputs, all.data() + nbInputs, 1);
}

uint64_t harnessWorkspace(void* plugin, HarnessTensor const* tensors, int32_t nbInputs)
{
    auto const all = dynamicDescriptions(tensors, nbInputs + 1);
    return build(plugin)->getWorkspaceSize(all.data(), nbInputs, all.data() + nbInputs, 1);
}

int32_t harnessTactics(void* plugin, int32_t* tactics, int32_t most)
{
    int32_t const count = std::min(build(plugin)->getNbTactics(), most);
    return build(plugin)->getValidTactics(tactics, count) == 0 ? count : -1;
}

int32_t harnessSetTactic(void* plugin, int32_t tactic)
{
    return runtime(plugin)->setTactic(tactic);
}

int32_t harnessShapeChange(void* plugin, HarnessTensor const* tensors, int32_t nbInputs)
{
    auto const all = descriptions(tensors, nbInputs + 1);
    return runtime(plugin)->onShapeChange(all.data(), nbInputs, all.data() + nbInputs, 1);
}

int32_t harnessEnqueue(void* plugin, HarnessTensor const* tensors, int32_t nbInputs, void const* const* inputs, void* output,
    void* workspace, uint64_t stream)
{
    auto const all = descriptions(tensors, nbInputs + 1);
    void* const outputs[] = {output};
    return runtime(plugin)->enqueue(
        all.data(), all.data() + nbInputs, inputs, outputs, workspace, reinterpret_cast<cudaStream_t>(stream));
}

int32_t harnessSerialize(void* plugin, HarnessField* fields, int32_t most)
{
    return copyFields(runtime(plugin)->getFieldsToSerialize(), fields, most);
}
