#include "kernel_package.h"

#include "crc32.h"
#include "cursor.h"
#include "package_check.h"

#include <array>

namespace gaussport
{
namespace
{

constexpr std::size_t kHEADER_BYTES = 8 + 4 + 8 + 4;
constexpr uint32_t kFORMAT_VERSION = 1;

//! The checksum, once magic, version and length are right and the checksum is that of the body.
uint32_t readHeader(std::vector<uint8_t> const& bytes)
{
    if (bytes.size() < kHEADER_BYTES || std::memcmp(bytes.data(), "GPKERNEL", 8) != 0)
    {
        throw Error("this is not a kernel package: it does not begin with GPKERNEL");
    }
    Cursor cursor(bytes.data() + 8, kHEADER_BYTES - 8);
    auto const version = cursor.number<uint32_t>();
    if (version != kFORMAT_VERSION)
    {
        throw Error("the kernel package has format " + std::to_string(version) + ", this library reads format "
            + std::to_string(kFORMAT_VERSION) + ": make the engine with the gaussport that runs it");
    }
    auto const length = cursor.number<uint64_t>();
    if (length != bytes.size())
    {
        throw Error("the kernel package is cut off or damaged: it should have " + std::to_string(length) + " bytes and has "
            + std::to_string(bytes.size()));
    }
    auto const checksum = cursor.number<uint32_t>();
    if (checksum != crc32(bytes.data() + kHEADER_BYTES, bytes.size() - kHEADER_BYTES))
    {
        throw Error("the kernel package is damaged: its checksum does not fit its content");
    }
    return checksum;
}

template <typename Enum>
Enum readEnum(Cursor& cursor, Enum last)
{
    auto const code = cursor.number<uint8_t>();
    if (code > static_cast<uint8_t>(last))
    {
        throw Error("the kernel package is damaged: it has an unknown code " + std::to_string(code));
    }
    return static_cast<Enum>(code);
}

Target readTarget(Cursor& cursor)
{
    auto const architecture = cursor.number<uint16_t>();
    return {architecture, readEnum(cursor, CodeKind::kPTX)};
}

std::pair<std::string const, AttributeValue> readAttribute(Cursor& cursor)
{
    auto name = cursor.text();
    auto const kind = cursor.number<char>();
    if (kind == 'f')
    {
        return {std::move(name), cursor.number<float>()};
    }
    if (kind != 'i')
    {
        throw Error("the kernel package is damaged: attribute " + name + " is of no known type");
    }
    return {std::move(name), cursor.number<int32_t>()};
}

KernelImage readImage(Cursor& cursor)
{
    KernelImage image{};
    image.target = readTarget(cursor);
    image.symbol = cursor.text();
    image.numWarps = cursor.number<uint16_t>();
    image.sharedBytes = cursor.number<uint32_t>();
    image.parameters = cursor.list<uint8_t>([&] { return readEnum(cursor, ParameterType::kFLOAT32); });
    auto const size = cursor.number<uint32_t>();
    auto const* const code = cursor.take(size);
    image.code.assign(code, code + size);
    return image;
}

Argument readArgument(Cursor& cursor)
{
    Argument argument{readEnum(cursor, ArgumentSource::kNULL)};
    switch (argument.source)
    {
    case ArgumentSource::kOPERAND:
    case ArgumentSource::kWORKSPACE: argument.index = cursor.number<uint8_t>(); break;
    case ArgumentSource::kINT32: argument.int32 = cursor.number<int32_t>(); break;
    case ArgumentSource::kFLOAT32: argument.float32 = cursor.number<float>(); break;
    case ArgumentSource::kNULL: break;
    }
    return argument;
}

Launch readLaunch(Cursor& cursor)
{
    auto const image = cursor.number<uint32_t>();
    auto const programs = cursor.number<uint32_t>();
    return {image, programs, cursor.list<uint8_t>([&] { return readArgument(cursor); })};
}

Plan readPlan(Cursor& cursor)
{
    Plan plan{};
    plan.name = cursor.text();
    plan.target = readTarget(cursor);
    plan.workspaceBytes = cursor.list<uint8_t>([&] { return cursor.number<uint64_t>(); });
    plan.launches = cursor.list<uint8_t>([&] { return readLaunch(cursor); });
    return plan;
}

std::optional<nvinfer1::DataType> readType(Cursor& cursor)
{
    using nvinfer1::DataType;
    constexpr std::array<DataType, 6> kTYPES{
        DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT32, DataType::kINT64, DataType::kBOOL};
    auto const code = cursor.number<uint8_t>();
    if (code > kTYPES.size())
    {
        throw Error("the kernel package is damaged: it has an unknown type " + std::to_string(code));
    }
    return code == 0 ? std::nullopt : std::optional(kTYPES[code - 1U]);
}

Variant readVariant(Cursor& cursor)
{
    Variant variant{};
    variant.types = cursor.list<uint8_t>([&] { return readType(cursor); });
    for (auto const& [letter, size] : cursor.list<uint8_t>([&] {
             auto name = cursor.text();
             return std::pair(std::move(name), cursor.number<int64_t>());
         }))
    {
        variant.sizes[letter] = size;
    }
    variant.tactics = cursor.list<uint8_t>([&] { return cursor.list<uint8_t>([&] { return readPlan(cursor); }); });
    return variant;
}

} // namespace

KernelPackage readKernelPackage(std::vector<uint8_t> const& bytes, OperatorSchema const& schema)
{
    KernelPackage package{};
    package.checksum = readHeader(bytes);
    Cursor cursor(bytes.data() + kHEADER_BYTES, bytes.size() - kHEADER_BYTES);
    auto const name = cursor.text();
    if (name != schema.name)
    {
        throw Error("the kernel package is for " + name + ", not for " + schema.name);
    }
    for (auto& [attribute, value] : cursor.list<uint8_t>([&] { return readAttribute(cursor); }))
    {
        package.attributes.emplace(attribute, value);
    }
    package.images = cursor.list<uint32_t>([&] { return readImage(cursor); });
    package.variants = cursor.list<uint32_t>([&] { return readVariant(cursor); });
    if (cursor.left() != 0)
    {
        throw Error("the kernel package is damaged: " + std::to_string(cursor.left()) + " bytes follow its end");
    }
    checkKernelPackage(package, schema);
    return package;
}

} // namespace gaussport
