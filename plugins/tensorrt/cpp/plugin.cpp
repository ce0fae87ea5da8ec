#include "plugin.h"

#include "guard.h"

#include <algorithm>
#include <cstdio>

namespace gaussport
{
namespace
{

using nvinfer1::Dims;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;
using nvinfer1::PluginTensorDesc;

bool operator==(Dims const& one, Dims const& other)
{
    return one.nbDims == other.nbDims && std::equal(one.d, one.d + one.nbDims, other.d);
}

//! Eight hexadecimal digits.
std::string hexadecimal(uint32_t number)
{
    char digits[9];
    static_cast<void>(std::snprintf(digits, sizeof(digits), "%08x", number));
    return digits;
}

//! Types of the operands that inputs give, in order; those after them are not given.
template <typename Input, typename TypeOf>
std::vector<std::optional<nvinfer1::DataType>> operandTypes(
    OperatorSchema const& schema, Input const* inputs, int32_t nbInputs, TypeOf&& typeOf)
{
    std::vector<std::optional<nvinfer1::DataType>> types(schema.operands.size());
    for (int32_t i = 0; i < nbInputs; ++i)
    {
        types[static_cast<std::size_t>(i)] = typeOf(inputs[i]);
    }
    return types;
}

template <typename Input, typename DimsOf>
std::vector<Dims> operandShapes(Input const* inputs, int32_t nbInputs, DimsOf&& dimsOf)
{
    std::vector<Dims> shapes;
    std::transform(inputs, inputs + nbInputs, std::back_inserter(shapes), dimsOf);
    return shapes;
}

nvinfer1::DataType typeOf(DynamicPluginTensorDesc const& input)
{
    return input.desc.type;
}

} // namespace

KernelPlugin::KernelPlugin(std::shared_ptr<Definition const> definition)
    : mDefinition(std::move(definition))
    , mIdentity("kernels " + hexadecimal(mDefinition->package->checksum))
{
}

KernelPlugin::KernelPlugin(KernelPlugin const& other)
    : mDefinition(other.mDefinition)
    , mIdentity(other.mIdentity)
    , mTactics(other.mTactics)
    , mTactic(other.mTactic)
{
}

nvinfer1::IPluginCapability* KernelPlugin::getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept
{
    switch (type)
    {
    case nvinfer1::PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore*>(this);
    case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
    case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
}

nvinfer1::IPluginV3* KernelPlugin::clone() noexcept
{
    return guarded<nvinfer1::IPluginV3*>(getPluginName(), "clone", nullptr, [&] { return new KernelPlugin(*this); });
}

nvinfer1::AsciiChar const* KernelPlugin::getPluginName() const noexcept
{
    return mDefinition->schema.name.c_str();
}

nvinfer1::AsciiChar const* KernelPlugin::getPluginVersion() const noexcept
{
    return kVERSION;
}

nvinfer1::AsciiChar const* KernelPlugin::getPluginNamespace() const noexcept
{
    return kNAMESPACE;
}

int32_t KernelPlugin::getNbOutputs() const noexcept
{
    return 1;
}

int32_t KernelPlugin::getOutputDataTypes(nvinfer1::DataType* outputTypes, int32_t /*nbOutputs*/,
    nvinfer1::DataType const* inputTypes, int32_t nbInputs) const noexcept
{
    return guarded(getPluginName(), "getOutputDataTypes", kFAILURE, [&] {
        checkNbInputs(nbInputs);
        auto const types = operandTypes(mDefinition->schema, inputTypes, nbInputs, [](nvinfer1::DataType type) { return type; });
        *outputTypes = *variantFor(types, {}).types.back();
        return kSUCCESS;
    });
}

int32_t KernelPlugin::getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs,
    nvinfer1::DimsExprs const* /*shapeInputs*/, int32_t /*nbShapeInputs*/, nvinfer1::DimsExprs* outputs, int32_t /*nbOutputs*/,
    nvinfer1::IExprBuilder& /*exprBuilder*/) noexcept
{
    return guarded(getPluginName(), "getOutputShapes", kFAILURE, [&] {
        checkNbInputs(nbInputs);
        auto const& schema = mDefinition->schema;
        std::vector<OptionalShape> shapes(schema.operands.size());
        for (int32_t i = 0; i < nbInputs; ++i)
        {
            std::vector<int64_t> shape;
            std::transform(inputs[i].d, inputs[i].d + inputs[i].nbDims, std::back_inserter(shape),
                [](auto const* axis) { return axis->isConstant() ? axis->getConstantValue() : kUNKNOWN; });
            shapes[static_cast<std::size_t>(i)] = std::move(shape);
        }
        bindShapes(schema, shapes);
        *outputs = inputs[schema.outputLike];
        return kSUCCESS;
    });
}

bool KernelPlugin::supportsFormatCombination(
    int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t /*nbOutputs*/) noexcept
{
    return guarded(getPluginName(), "supportsFormatCombination", false, [&] {
        checkNbInputs(nbInputs);
        if (inOut[pos].desc.format != nvinfer1::TensorFormat::kLINEAR)
        {
            return false;
        }
        auto const& variants = mDefinition->package->variants;
        return std::any_of(variants.begin(), variants.end(), [&](Variant const& variant) {
            bool fits = true;
            for (int32_t i = 0; fits && i <= pos; ++i)
            {
                auto const& type = i < nbInputs ? variant.types[static_cast<std::size_t>(i)] : variant.types.back();
                fits = type == inOut[i].desc.type;
            }
            return fits;
        });
    });
}

int32_t KernelPlugin::configurePlugin(
    DynamicPluginTensorDesc const* in, int32_t nbInputs, DynamicPluginTensorDesc const* /*out*/, int32_t /*nbOutputs*/) noexcept
{
    return guarded(getPluginName(), "configurePlugin", kFAILURE, [&] {
        checkNbInputs(nbInputs);
        auto const types = operandTypes(mDefinition->schema, in, nbInputs, typeOf);
        for (auto const extent : {&DynamicPluginTensorDesc::min, &DynamicPluginTensorDesc::max, &DynamicPluginTensorDesc::opt})
        {
            auto const shapes = operandShapes(in, nbInputs, [&](DynamicPluginTensorDesc const& input) { return input.*extent; });
            auto const& variant = variantFor(types, shapes);
            if (extent == &DynamicPluginTensorDesc::opt)
            {
                findTactics(variant);
            }
        }
        return kSUCCESS;
    });
}

std::size_t KernelPlugin::getWorkspaceSize(DynamicPluginTensorDesc const* inputs, int32_t nbInputs,
    DynamicPluginTensorDesc const* /*outputs*/, int32_t /*nbOutputs*/) const noexcept
{
    return guarded(getPluginName(), "getWorkspaceSize", std::size_t{0}, [&] {
        checkNbInputs(nbInputs);
        auto const types = operandTypes(mDefinition->schema, inputs, nbInputs, typeOf);
        auto const batch = static_cast<uint64_t>(std::max<int64_t>(inputs[0].max.d[0], 1));
        uint64_t most = 0;
        for (auto const& variant : mDefinition->package->variants)
        {
            if (!std::equal(types.begin(), types.end(), variant.types.begin()))
            {
                continue;
            }
            std::size_t const tactics = mTactics.empty() ? 1 : variant.tactics.size();
            for (std::size_t tactic = 0; tactic < tactics; ++tactic)
            {
                for (auto const& plan : variant.tactics[tactic])
                {
                    most = std::max(most, workspaceBytes(plan, batch));
                }
            }
        }
        return static_cast<std::size_t>(most);
    });
}

int32_t KernelPlugin::getNbTactics() noexcept
{
    return static_cast<int32_t>(mTactics.size());
}

int32_t KernelPlugin::getValidTactics(int32_t* tactics, int32_t nbTactics) noexcept
{
    std::copy_n(mTactics.begin(), std::min(mTactics.size(), static_cast<std::size_t>(std::max(nbTactics, 0))), tactics);
    return kSUCCESS;
}

char const* KernelPlugin::getTimingCacheID() noexcept
{
    return mIdentity.c_str();
}

char const* KernelPlugin::getMetadataString() noexcept
{
    return mIdentity.c_str();
}

int32_t KernelPlugin::setTactic(int32_t tactic) noexcept
{
    return guarded(getPluginName(), "setTactic", kFAILURE, [&] {
        if (tactic < 0)
        {
            throw Error("there is no tactic " + std::to_string(tactic));
        }
        mTactic = tactic;
        return kSUCCESS;
    });
}

int32_t KernelPlugin::onShapeChange(
    PluginTensorDesc const* in, int32_t nbInputs, PluginTensorDesc const* /*out*/, int32_t /*nbOutputs*/) noexcept
{
    return guarded(getPluginName(), "onShapeChange", kFAILURE, [&] {
        prepare(in, nbInputs);
        return kSUCCESS;
    });
}

int32_t KernelPlugin::enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* /*outputDesc*/,
    void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream) noexcept
{
    return guarded(getPluginName(), "enqueue", kFAILURE, [&] {
        if (!mPrepared.has_value())
        {
            throw Error("no shape was announced by onShapeChange");
        }
        auto const& before = mPrepared->inputs;
        bool const same = std::equal(before.begin(), before.end(), inputDesc,
            [](PluginTensorDesc const& was, PluginTensorDesc const& is) { return was.dims == is.dims && was.type == is.type; });
        if (!same)
        {
            prepare(inputDesc, static_cast<int32_t>(before.size()));
        }
        Addresses addresses{std::vector<void const*>(mDefinition->schema.operands.size()), workspace};
        std::copy_n(inputs, mPrepared->inputs.size(), addresses.operands.begin());
        addresses.operands.push_back(outputs[0]);
        auto const tactic = static_cast<std::size_t>(std::max(mTactic - 1, 0));
        launcher().run(*mPrepared->variant, tactic, mPrepared->batch, addresses, stream);
        return kSUCCESS;
    });
}

nvinfer1::IPluginV3* KernelPlugin::attachToContext(nvinfer1::IPluginResourceContext* /*context*/) noexcept
{
    return clone(); // it loads kernels of its own
}

nvinfer1::PluginFieldCollection const* KernelPlugin::getFieldsToSerialize() noexcept
{
    return guarded<nvinfer1::PluginFieldCollection const*>(getPluginName(), "getFieldsToSerialize", nullptr, [&] {
        auto const& bytes = mDefinition->packageBytes;
        mFields = {PluginField(kKERNELS, bytes.data(), PluginFieldType::kINT8, static_cast<int32_t>(bytes.size()))};
        for (auto const& [name, value] : mDefinition->package->attributes)
        {
            auto const* const number = std::get_if<float>(&value);
            void const* const data = number != nullptr ? static_cast<void const*>(number) : std::get_if<int32_t>(&value);
            mFields.emplace_back(name.c_str(), data, number != nullptr ? PluginFieldType::kFLOAT32 : PluginFieldType::kINT32, 1);
        }
        mFieldCollection = {static_cast<int32_t>(mFields.size()), mFields.data()};
        return &mFieldCollection;
    });
}

void KernelPlugin::checkNbInputs(int32_t nbInputs) const
{
    auto const& operands = mDefinition->schema.operands;
    auto const required = std::count_if(operands.begin(), operands.end(), [](Operand const& operand) { return !operand.optional; });
    if (nbInputs < required || nbInputs > static_cast<int32_t>(operands.size()))
    {
        throw Error("the operator has " + std::to_string(operands.size()) + " operands, of which " + std::to_string(required)
            + " must be given, but the node has " + std::to_string(nbInputs));
    }
}

//! No shapes: of these types, whatever the sizes.
Variant const& KernelPlugin::variantFor(Types const& types, std::vector<Dims> const& shapes) const
{
    auto const& schema = mDefinition->schema;
    std::vector<OptionalShape> operands(schema.operands.size());
    for (std::size_t i = 0; i < shapes.size(); ++i)
    {
        operands[i] = std::vector<int64_t>(shapes[i].d, shapes[i].d + shapes[i].nbDims);
    }
    return findVariant(*mDefinition->package, schema, types, bindShapes(schema, operands));
}

void KernelPlugin::prepare(PluginTensorDesc const* in, int32_t nbInputs)
{
    mPrepared.reset();
    checkNbInputs(nbInputs);
    auto const types
        = operandTypes(mDefinition->schema, in, nbInputs, [](PluginTensorDesc const& input) { return input.type; });
    auto const shapes = operandShapes(in, nbInputs, [](PluginTensorDesc const& input) { return input.dims; });
    auto const& variant = variantFor(types, shapes);
    launcher().prepare(variant, static_cast<std::size_t>(std::max(mTactic - 1, 0)));
    mPrepared = Prepared{{in, in + nbInputs}, &variant, in[0].dims.d[0]};
}

//! What TensorRT may time on this machine's GPU; nothing where there is no GPU, or where there is one way to run.
void KernelPlugin::findTactics(Variant const& variant)
{
    mTactics.clear();
    int32_t architecture = 0;
    try
    {
        architecture = Driver::open()->architecture();
    }
    catch (Error const& error)
    {
        log(Severity::kVERBOSE, mDefinition->schema.name + ": no tactic is timed, because " + error.what());
        return;
    }
    for (std::size_t i = 0; i < variant.tactics.size(); ++i)
    {
        if (planFor(variant.tactics[i], architecture) != nullptr)
        {
            mTactics.push_back(static_cast<int32_t>(i + 1));
        }
    }
    if (mTactics.size() < 2)
    {
        mTactics.clear();
    }
}

Launcher& KernelPlugin::launcher()
{
    if (mLauncher == nullptr)
    {
        mLauncher = std::make_unique<Launcher>(mDefinition->package);
    }
    return *mLauncher;
}

} // namespace gaussport
