// Makes plugins from the fields that TensorRT's parser or a serialized engine hands over; one creator per operator.
#pragma once

#include "schema.h"
#include "tensorrt.h"

#include <memory>
#include <vector>

namespace gaussport
{

class PluginCreator final : public nvinfer1::IPluginCreatorV3One
{
public:
    explicit PluginCreator(OperatorSchema schema);

    nvinfer1::IPluginV3* createPlugin(nvinfer1::AsciiChar const* name, nvinfer1::PluginFieldCollection const* fields,
        nvinfer1::TensorRTPhase phase) noexcept override;
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override;
    nvinfer1::AsciiChar const* getPluginName() const noexcept override;
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override;
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override;

private:
    OperatorSchema mSchema;
    std::vector<nvinfer1::PluginField> mFields;
    nvinfer1::PluginFieldCollection mFieldCollection{};
};

//! One creator per operator, made at the first call and kept: registries hold on to their addresses.
std::vector<std::unique_ptr<PluginCreator>> const& creators();

} // namespace gaussport
