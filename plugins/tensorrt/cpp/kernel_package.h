// The kernel package: compiled kernels, and the plans by which they are launched. Written by package.py, read here.
#pragma once

#include "schema.h"
#include "tensorrt.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gaussport
{

enum class CodeKind : uint8_t
{
    kCUBIN, //!< machine code for one compute capability
    kPTX    //!< text that a driver compiles for its own and newer ones
};

//! What code is for: a compute capability such as 86, in one of two forms.
struct Target
{
    int32_t architecture;
    CodeKind kind;
};

enum class ParameterType : uint8_t
{
    kPOINTER,
    kINT32,
    kFLOAT32
};

struct KernelImage
{
    Target target;
    std::string symbol;
    uint32_t numWarps;
    uint32_t sharedBytes;
    std::vector<ParameterType> parameters;
    std::vector<uint8_t> code;
};

enum class ArgumentSource : uint8_t
{
    kOPERAND, //!< or the output, which comes after the operands
    kWORKSPACE,
    kINT32,
    kFLOAT32,
    kNULL
};

struct Argument
{
    ArgumentSource source{ArgumentSource::kNULL};
    uint8_t index{0};
    int32_t int32{0};
    float float32{0.0F};
};

struct Launch
{
    uint32_t image;
    uint32_t programsPerImage; //!< times the batch is the grid
    std::vector<Argument> arguments;
};

struct Plan
{
    std::string name;
    Target target;
    std::vector<uint64_t> workspaceBytes; //!< of each workspace, per image
    std::vector<Launch> launches;
};

//! One way to run a variant: a plan per target that it can run on.
using Tactic = std::vector<Plan>;

constexpr int64_t kBATCH = -1; //!< a size that means: as many as there are images

//! What runs for one set of types and sizes.
struct Variant
{
    std::vector<std::optional<nvinfer1::DataType>> types; //!< of each operand (none: not given), and of the output
    std::map<std::string, int64_t> sizes;
    std::vector<Tactic> tactics; //!< the one to take without timing first
};

using AttributeValue = std::variant<int32_t, float>;

struct KernelPackage
{
    std::map<std::string, AttributeValue> attributes;
    std::vector<KernelImage> images;
    std::vector<Variant> variants;
    uint32_t checksum;
};

//! Read and check all of a package. Throws Error unless every byte of it makes sense for this operator.
KernelPackage readKernelPackage(std::vector<uint8_t> const& bytes, OperatorSchema const& schema);

} // namespace gaussport
