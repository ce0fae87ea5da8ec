#include "package_check.h"

#include "error.h"

#include <cctype>
#include <set>

namespace gaussport
{
namespace
{

constexpr uint32_t kMOST_WARPS = 32;
constexpr uint32_t kMOST_SHARED_BYTES = 227U << 10U;          // of any GPU so far
constexpr uint64_t kMOST_WORKSPACE_BYTES = uint64_t{1} << 40U; // per image; more than any GPU has

void require(bool holds, char const* what)
{
    if (!holds)
    {
        throw Error(std::string("the kernel package is damaged: ") + what);
    }
}

bool sameTarget(Target const& one, Target const& other)
{
    return one.architecture == other.architecture && one.kind == other.kind;
}

void checkAttributes(KernelPackage const& package, OperatorSchema const& schema)
{
    require(package.attributes.size() == schema.attributes.size(), "it has other attributes than its operator");
    for (auto const& attribute : schema.attributes)
    {
        auto const found = package.attributes.find(attribute.name);
        bool const isFloat = attribute.type == AttributeType::kFLOAT32;
        require(found != package.attributes.end() && std::holds_alternative<float>(found->second) == isFloat,
            "an attribute is missing or of another type");
    }
}

void checkImage(KernelImage const& image)
{
    require(!image.symbol.empty() && !image.code.empty(), "a kernel has no name or no code");
    require(image.numWarps >= 1 && image.numWarps <= kMOST_WARPS, "a kernel has an impossible number of warps");
    require(image.sharedBytes <= kMOST_SHARED_BYTES, "a kernel asks for more shared memory than there is");
    require(image.target.kind == CodeKind::kCUBIN || image.code.back() == 0, "the text of a kernel does not end");
}

bool fits(Argument const& argument, ParameterType parameter, Plan const& plan, Variant const& variant)
{
    switch (argument.source)
    {
    case ArgumentSource::kOPERAND:
        return parameter == ParameterType::kPOINTER && argument.index < variant.types.size()
            && variant.types[argument.index].has_value();
    case ArgumentSource::kWORKSPACE:
        return parameter == ParameterType::kPOINTER && argument.index < plan.workspaceBytes.size();
    case ArgumentSource::kNULL: return parameter == ParameterType::kPOINTER;
    case ArgumentSource::kINT32: return parameter == ParameterType::kINT32;
    case ArgumentSource::kFLOAT32: return parameter == ParameterType::kFLOAT32;
    }
    return false;
}

void checkPlan(Plan const& plan, Variant const& variant, std::vector<KernelImage> const& images)
{
    require(!plan.launches.empty(), "a plan launches nothing");
    for (uint64_t const bytes : plan.workspaceBytes)
    {
        require(bytes <= kMOST_WORKSPACE_BYTES, "a plan asks for more workspace than there is");
    }
    for (auto const& launch : plan.launches)
    {
        require(launch.image < images.size(), "a launch names a kernel that is not there");
        auto const& image = images[launch.image];
        require(sameTarget(image.target, plan.target), "a plan launches a kernel of another architecture");
        require(launch.programsPerImage >= 1, "a launch has no programs");
        require(launch.arguments.size() == image.parameters.size(), "a launch has another number of arguments than its kernel");
        for (std::size_t i = 0; i < launch.arguments.size(); ++i)
        {
            require(fits(launch.arguments[i], image.parameters[i], plan, variant), "an argument does not fit its parameter");
        }
    }
}

//! The letters of the operands that a variant is given.
std::set<std::string> letters(Variant const& variant, OperatorSchema const& schema)
{
    std::set<std::string> found;
    for (std::size_t i = 0; i < schema.operands.size(); ++i)
    {
        for (auto const& axis : schema.operands[i].axes)
        {
            if (variant.types[i].has_value() && std::isdigit(static_cast<unsigned char>(axis.front())) == 0)
            {
                found.insert(axis);
            }
        }
    }
    return found;
}

void checkVariant(Variant const& variant, KernelPackage const& package, OperatorSchema const& schema)
{
    require(variant.types.size() == schema.operands.size() + 1, "it has another number of operands than its operator");
    require(variant.types.back().has_value(), "the output has no type");
    for (std::size_t i = 0; i < schema.operands.size(); ++i)
    {
        require(schema.operands[i].optional || variant.types[i].has_value(), "an operand has no type");
    }
    std::set<std::string> sized;
    for (auto const& [letter, size] : variant.sizes)
    {
        require(size >= 1 || size == kBATCH, "a size is not positive");
        sized.insert(letter);
    }
    require(sized == letters(variant, schema), "sizes are missing, or of letters that the operands do not have");
    require(!variant.tactics.empty(), "there is no way to run a set of sizes");
    for (auto const& tactic : variant.tactics)
    {
        require(!tactic.empty(), "a tactic has no plan");
        for (auto const& plan : tactic)
        {
            checkPlan(plan, variant, package.images);
        }
    }
}

} // namespace

void checkKernelPackage(KernelPackage const& package, OperatorSchema const& schema)
{
    checkAttributes(package, schema);
    for (auto const& image : package.images)
    {
        checkImage(image);
    }
    require(!package.variants.empty(), "it has kernels for no sizes");
    for (auto const& variant : package.variants)
    {
        checkVariant(variant, package, schema);
    }
}

} // namespace gaussport
