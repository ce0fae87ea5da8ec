#include "creator.h"

#include "base64.h"
#include "guard.h"
#include "plugin.h"

#include <algorithm>
#include <cstring>

namespace gaussport
{
namespace
{

using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

PluginField const* findField(nvinfer1::PluginFieldCollection const* fields, std::string const& name)
{
    if (fields == nullptr || fields->fields == nullptr)
    {
        return nullptr;
    }
    auto const* const end = fields->fields + fields->nbFields;
    auto const* const found = std::find_if(
        fields->fields, end, [&](PluginField const& field) { return field.name != nullptr && name == field.name; });
    return found == end || found->data == nullptr || found->length < 1 ? nullptr : found;
}

//! Base64 text from an ONNX attribute, or the bytes themselves from an engine.
std::vector<uint8_t> packageBytes(PluginField const* field)
{
    if (field == nullptr)
    {
        throw Error("the node has no attribute \"kernels\": make its engine with `gaussport build-engine`, which compiles them");
    }
    auto const length = static_cast<std::size_t>(field->length);
    if (field->type == PluginFieldType::kCHAR)
    {
        return decodeBase64(static_cast<char const*>(field->data), length);
    }
    if (field->type != PluginFieldType::kINT8)
    {
        throw Error("the attribute \"kernels\" is neither text nor bytes");
    }
    auto const* const bytes = static_cast<uint8_t const*>(field->data);
    return {bytes, bytes + length};
}

template <typename Number>
Number readNumber(PluginField const& field)
{
    Number number;
    std::memcpy(&number, field.data, sizeof(Number));
    return number;
}

//! The number in a field of any numeric type that TensorRT makes of an attribute.
double numberIn(PluginField const& field)
{
    switch (field.type)
    {
    case PluginFieldType::kFLOAT32: return readNumber<float>(field);
    case PluginFieldType::kFLOAT64: return readNumber<double>(field);
    case PluginFieldType::kINT32: return readNumber<int32_t>(field);
    case PluginFieldType::kINT64: return static_cast<double>(readNumber<int64_t>(field));
    default: throw Error(std::string("attribute \"") + field.name + "\" is not a number");
    }
}

//! The kernels were compiled and planned for the attributes that the package holds; the node must have the same.
void checkAttributes(KernelPackage const& package, nvinfer1::PluginFieldCollection const* fields)
{
    for (auto const& [name, value] : package.attributes)
    {
        auto const* const field = findField(fields, name);
        double const compiled = std::visit([](auto number) { return static_cast<double>(number); }, value);
        if (field != nullptr && static_cast<float>(numberIn(*field)) != static_cast<float>(compiled))
        {
            throw Error("attribute \"" + name + "\" is " + std::to_string(numberIn(*field)) + " but the node's kernels were made for "
                + std::to_string(compiled) + ": make them again");
        }
    }
}

} // namespace

PluginCreator::PluginCreator(OperatorSchema schema)
    : mSchema(std::move(schema))
{
    mFields.emplace_back(kKERNELS, nullptr, PluginFieldType::kCHAR, 1);
    for (auto const& attribute : mSchema.attributes)
    {
        bool const isFloat = attribute.type == AttributeType::kFLOAT32;
        mFields.emplace_back(
            attribute.name.c_str(), nullptr, isFloat ? PluginFieldType::kFLOAT32 : PluginFieldType::kINT32, 1);
    }
    mFieldCollection = {static_cast<int32_t>(mFields.size()), mFields.data()};
}

nvinfer1::IPluginV3* PluginCreator::createPlugin(nvinfer1::AsciiChar const* name,
    nvinfer1::PluginFieldCollection const* fields, nvinfer1::TensorRTPhase /*phase*/) noexcept
{
    std::string const node = name == nullptr ? "" : name;
    return guarded<nvinfer1::IPluginV3*>(mSchema.name + " \"" + node + "\"", "createPlugin", nullptr, [&] {
        auto definition = std::make_shared<Definition>();
        definition->schema = mSchema;
        definition->packageBytes = packageBytes(findField(fields, kKERNELS));
        definition->package
            = std::make_shared<KernelPackage const>(readKernelPackage(definition->packageBytes, definition->schema));
        checkAttributes(*definition->package, fields);
        return new KernelPlugin(std::move(definition));
    });
}

nvinfer1::PluginFieldCollection const* PluginCreator::getFieldNames() noexcept
{
    return &mFieldCollection;
}

nvinfer1::AsciiChar const* PluginCreator::getPluginName() const noexcept
{
    return mSchema.name.c_str();
}

nvinfer1::AsciiChar const* PluginCreator::getPluginVersion() const noexcept
{
    return kVERSION;
}

nvinfer1::AsciiChar const* PluginCreator::getPluginNamespace() const noexcept
{
    return kNAMESPACE;
}

std::vector<std::unique_ptr<PluginCreator>> const& creators()
{
    static auto const kCREATORS = [] {
        std::vector<std::unique_ptr<PluginCreator>> made;
        for (auto& schema : operators())
        {
            made.push_back(std::make_unique<PluginCreator>(std::move(schema)));
        }
        return made;
    }();
    return kCREATORS;
}

} // namespace gaussport
