// Makes plugins from the fields that TensorRT's parser or a serialized engine hands over; one creator per operator.
#pragma once

#include "schema.h"
#include "tensorrt.h"

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

} // namespace gaussport
