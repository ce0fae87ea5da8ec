// LatentMemoryRouting in TensorRT: its operands and attributes. Everything else about it is in the kernel package of a node.
#include "schema.h"

namespace gaussport
{

OperatorSchema latent_memory_routing();

OperatorSchema latent_memory_routing()
{
    return {
        "LatentMemoryRouting",
        {
            {"query", {"B", "N", "P", "dr"}},
            {"key", {"B", "N", "P", "dr"}},
            {"value", {"B", "N", "P", "dv"}},
            {"mean", {"P", "K", "dr"}},
            {"variance", {"P", "K", "dr"}},
            {"log_prior", {"P", "K"}},
            {"key_mask", {"B", "N"}, true},
        },
        {{"epsilon", AttributeType::kFLOAT32}, {"causal", AttributeType::kINT32}},
        2,
    };
}

} // namespace gaussport
