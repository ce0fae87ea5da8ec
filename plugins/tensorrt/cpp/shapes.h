// Which sizes the operands of a node have, letter by letter, and which variant of a package runs them.
#pragma once

#include "kernel_package.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gaussport
{

constexpr int64_t kUNKNOWN = -1; //!< an axis whose size is not known yet

using Sizes = std::map<std::string, int64_t>;
using OptionalShape = std::optional<std::vector<int64_t>>;

//! The size of every letter; letters of unknown size are left out. `shapes` has one entry per operand of the schema.
//! Throws Error when a rank, a number or a letter met before does not fit.
Sizes bindShapes(OperatorSchema const& schema, std::vector<OptionalShape> const& shapes);

//! The variant of the package for operands of these types and sizes. A letter that is left out of `sizes` fits any.
//! Throws Error, saying what there is, when there is none.
Variant const& findVariant(KernelPackage const& package, OperatorSchema const& schema,
    std::vector<std::optional<nvinfer1::DataType>> const& types, Sizes const& sizes);

} // namespace gaussport
