// The TensorRT plugin: one class for every operator, told apart by schema and kernel package.
#pragma once

#include "kernel_package.h"
#include "launcher.h"
#include "shapes.h"

#include <memory>
#include <string>
#include <vector>

namespace gaussport
{

//! What a node is: the same for the plugin, its clones and whatever is made from its serialized fields.
struct Definition
{
    OperatorSchema schema;
    std::vector<uint8_t> packageBytes;
    std::shared_ptr<KernelPackage const> package;
};

class KernelPlugin final : public nvinfer1::IPluginV3,
                           public nvinfer1::IPluginV3OneCore,
                           public nvinfer1::IPluginV3OneBuild,
                           public nvinfer1::IPluginV3OneRuntime
{
public:
    explicit KernelPlugin(std::shared_ptr<Definition const> definition);
    KernelPlugin(KernelPlugin const& other);
    ~KernelPlugin() override = default;
    KernelPlugin(KernelPlugin&&) = delete;
    KernelPlugin& operator=(KernelPlugin const&) = delete;
    KernelPlugin& operator=(KernelPlugin&&) = delete;

    // IPluginV3
    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
    nvinfer1::IPluginV3* clone() noexcept override;

    // IPluginV3OneCore
    nvinfer1::AsciiChar const* getPluginName() const noexcept override;
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override;
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override;

    // IPluginV3OneBuild
    int32_t getNbOutputs() const noexcept override;
    int32_t getOutputDataTypes(nvinfer1::DataType* outputTypes, int32_t nbOutputs, nvinfer1::DataType const* inputTypes,
        int32_t nbInputs) const noexcept override;
    int32_t getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs, nvinfer1::DimsExprs const* shapeInputs,
        int32_t nbShapeInputs, nvinfer1::DimsExprs* outputs, int32_t nbOutputs,
        nvinfer1::IExprBuilder& exprBuilder) noexcept override;
    bool supportsFormatCombination(
        int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) noexcept override;
    int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, int32_t nbInputs,
        nvinfer1::DynamicPluginTensorDesc const* out, int32_t nbOutputs) noexcept override;
    std::size_t getWorkspaceSize(nvinfer1::DynamicPluginTensorDesc const* inputs, int32_t nbInputs,
        nvinfer1::DynamicPluginTensorDesc const* outputs, int32_t nbOutputs) const noexcept override;
    int32_t getNbTactics() noexcept override;
    int32_t getValidTactics(int32_t* tactics, int32_t nbTactics) noexcept override;
    char const* getTimingCacheID() noexcept override;
    char const* getMetadataString() noexcept override;

    // IPluginV3OneRuntime
    int32_t setTactic(int32_t tactic) noexcept override;
    int32_t onShapeChange(nvinfer1::PluginTensorDesc const* in, int32_t nbInputs, nvinfer1::PluginTensorDesc const* out,
        int32_t nbOutputs) noexcept override;
    int32_t enqueue(nvinfer1::PluginTensorDesc const* inputDesc, nvinfer1::PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream) noexcept override;
    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
    nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override;

private:
    using Types = std::vector<std::optional<nvinfer1::DataType>>;

    //! The shape that the last run had, and what runs it.
    struct Prepared
    {
        std::vector<nvinfer1::PluginTensorDesc> inputs;
        Variant const* variant;
        int64_t batch;
    };

    void checkNbInputs(int32_t nbInputs) const;
    Variant const& variantFor(Types const& types, std::vector<nvinfer1::Dims> const& shapes) const;
    void prepare(nvinfer1::PluginTensorDesc const* in, int32_t nbInputs);
    void findTactics(Variant const& variant);
    Launcher& launcher();

    std::shared_ptr<Definition const> mDefinition;
    std::string mIdentity;         //!< what distinguishes this node's kernels
    std::vector<int32_t> mTactics; //!< that TensorRT may time, numbered from 1; none when there is but one
    int32_t mTactic{0};            //!< 0 when TensorRT timed nothing
    std::optional<Prepared> mPrepared;
    std::unique_ptr<Launcher> mLauncher;
    std::vector<nvinfer1::PluginField> mFields;
    nvinfer1::PluginFieldCollection mFieldCollection{};
};

} // namespace gaussport
