// SeparableGaussianFilter in TensorRT: its operands. Everything else about it is in the kernel package that a node carries.
#include "schema.h"

namespace gaussport
{

OperatorSchema separable_gaussian_filter();

OperatorSchema separable_gaussian_filter()
{
    return {
        "SeparableGaussianFilter",
        {
            {"value", {"B", "H", "W", "P", "D"}},
            {"offset", {"b", "h", "w", "P", "R", "2"}},
            {"width", {"b", "h", "w", "P", "R", "2"}},
            {"weight", {"b", "h", "w", "P", "R"}},
        },
        {},
        0,
    };
}

} // namespace gaussport
