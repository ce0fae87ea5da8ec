#include "shapes.h"

#include "error.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace gaussport
{
namespace
{

std::string join(std::vector<std::string> const& words, char const* separator)
{
    std::string text;
    for (auto const& word : words)
    {
        text += (text.empty() ? "" : separator) + word;
    }
    return text;
}

std::string bracketed(std::vector<std::string> const& words)
{
    return "[" + join(words, ", ") + "]";
}

bool isNumber(std::string const& axis)
{
    return std::isdigit(static_cast<unsigned char>(axis.front())) != 0;
}

//! Whether an axis may have this size, given the sizes so far; a letter met for the first time takes it.
bool fits(std::string const& axis, int64_t size, Sizes& sizes)
{
    if (size == kUNKNOWN)
    {
        return true;
    }
    if (isNumber(axis))
    {
        return size == std::stoll(axis);
    }
    return sizes.emplace(axis, size).first->second == size;
}

void bindOne(Operand const& operand, std::vector<int64_t> const& shape, Sizes& sizes)
{
    bool good = shape.size() == operand.axes.size();
    for (std::size_t i = 0; good && i < shape.size(); ++i)
    {
        good = fits(operand.axes[i], shape[i], sizes);
    }
    if (good)
    {
        return;
    }
    std::vector<std::string> is;
    std::transform(shape.begin(), shape.end(), std::back_inserter(is),
        [](int64_t size) { return size == kUNKNOWN ? std::string("?") : std::to_string(size); });
    std::vector<std::string> should;
    for (auto const& axis : operand.axes)
    {
        auto const known = sizes.find(axis);
        should.push_back(known == sizes.end() ? axis : axis + " = " + std::to_string(known->second));
    }
    throw Error(operand.name + " has shape " + bracketed(is) + " but should be " + bracketed(should));
}

//! "B = 2, H = 14, W = 14": the sizes in the operator's order of letters; no word of a batch that may be any.
std::string describe(OperatorSchema const& schema, Sizes const& sizes)
{
    std::vector<std::string> words;
    std::set<std::string> seen;
    for (auto const& operand : schema.operands)
    {
        for (auto const& axis : operand.axes)
        {
            auto const found = sizes.find(axis);
            bool const any = axis == schema.batchLetter() && found != sizes.end() && found->second == kBATCH;
            if (found != sizes.end() && !any && seen.insert(axis).second)
            {
                words.push_back(axis + " = " + (found->second == kBATCH ? schema.batchLetter() : std::to_string(found->second)));
            }
        }
    }
    return join(words, ", ");
}

std::string describe(std::vector<std::optional<nvinfer1::DataType>> const& types, std::size_t operands)
{
    std::vector<std::string> words;
    for (std::size_t i = 0; i < operands; ++i)
    {
        words.push_back(types[i].has_value() ? nameOf(*types[i]) : "none");
    }
    return bracketed(words);
}

bool hasSizes(Variant const& variant, OperatorSchema const& schema, Sizes const& sizes)
{
    auto const batch = sizes.find(schema.batchLetter());
    return std::all_of(sizes.begin(), sizes.end(), [&](auto const& entry) {
        auto const found = variant.sizes.find(entry.first);
        if (found == variant.sizes.end())
        {
            return false;
        }
        bool const isBatch = found->second == kBATCH;
        return isBatch ? batch == sizes.end() || entry.second == batch->second : entry.second == found->second;
    });
}

} // namespace

Sizes bindShapes(OperatorSchema const& schema, std::vector<OptionalShape> const& shapes)
{
    Sizes sizes;
    for (std::size_t i = 0; i < schema.operands.size(); ++i)
    {
        if (shapes[i].has_value())
        {
            bindOne(schema.operands[i], *shapes[i], sizes);
        }
    }
    return sizes;
}

Variant const& findVariant(KernelPackage const& package, OperatorSchema const& schema,
    std::vector<std::optional<nvinfer1::DataType>> const& types, Sizes const& sizes)
{
    std::set<std::string> typed;
    std::set<std::string> sized;
    for (auto const& variant : package.variants)
    {
        bool const hasTypes = std::equal(types.begin(), types.end(), variant.types.begin(), variant.types.end() - 1);
        if (hasTypes && hasSizes(variant, schema, sizes))
        {
            return variant;
        }
        typed.insert(describe(variant.types, schema.operands.size()));
        if (hasTypes)
        {
            sized.insert(describe(schema, variant.sizes));
        }
    }
    std::string const cure = ": build the engine with kernels for it";
    if (sized.empty())
    {
        throw Error("operands are " + describe(types, types.size()) + " but kernels were compiled for "
            + join({typed.begin(), typed.end()}, " or ") + cure);
    }
    throw Error("operands have " + describe(schema, sizes) + " but kernels were compiled for "
        + join({sized.begin(), sized.end()}, "; for ") + cure);
}

} // namespace gaussport
