// TensorRT's side of a plugin's life, as a C interface: finds creators, makes plugins, asks them everything, runs them.
#pragma once

#include <cstddef>
#include <cstdint>

#define HARNESS_EXPORT extern "C" __attribute__((visibility("default")))

//! One tensor as TensorRT describes it; extents of -1 are not known yet. Without a range, min and max equal dims.
struct HarnessTensor
{
    int32_t type;
    int32_t format;
    int32_t rank;
    int32_t padding;
    int64_t dims[8];
    int64_t min[8];
    int64_t max[8];
};

struct HarnessField
{
    char const* name;
    void const* data;
    int32_t type;
    int32_t length;
};

//! Load a plugin library as a registry does. Returns the number of creators, or -1 and a message in the log.
HARNESS_EXPORT int32_t harnessLoad(char const* path);

//! Everything logged since the last call, one line each: "severity message".
HARNESS_EXPORT char const* harnessTakeLog();

HARNESS_EXPORT char const* harnessCreatorName(int32_t creator);
HARNESS_EXPORT char const* harnessCreatorVersion(int32_t creator);
HARNESS_EXPORT char const* harnessCreatorNamespace(int32_t creator);
HARNESS_EXPORT int32_t harnessCreatorFields(int32_t creator, HarnessField* fields, int32_t most);

//! A plugin made by a creator, or null.
HARNESS_EXPORT void* harnessCreate(
    int32_t creator, char const* node, HarnessField const* fields, int32_t nbFields, int32_t phase);
HARNESS_EXPORT void* harnessClone(void* plugin);
HARNESS_EXPORT void* harnessAttach(void* plugin);
HARNESS_EXPORT void harnessDestroy(void* plugin);
HARNESS_EXPORT char const* harnessPluginName(void* plugin);
HARNESS_EXPORT char const* harnessPluginMetadata(void* plugin);

//! Build phase. Inputs first, then the output, in `tensors` where both are asked for.
HARNESS_EXPORT int32_t harnessOutputType(void* plugin, int32_t const* types, int32_t nbInputs, int32_t* outputType);
HARNESS_EXPORT int32_t harnessOutputShape(void* plugin, HarnessTensor const* inputs, int32_t nbInputs, HarnessTensor* output);
HARNESS_EXPORT int32_t harnessSupportsFormat(void* plugin, int32_t position, HarnessTensor const* tensors, int32_t nbInputs);
HARNESS_EXPORT int32_t harnessConfigure(void* plugin, HarnessTensor const* tensors, int32_t nbInputs);
HARNESS_EXPORT uint64_t harnessWorkspace(void* plugin, HarnessTensor const* tensors, int32_t nbInputs);
HARNESS_EXPORT int32_t harnessTactics(void* plugin, int32_t* tactics, int32_t most);

//! Runtime phase.
HARNESS_EXPORT int32_t harnessSetTactic(void* plugin, int32_t tactic);
HARNESS_EXPORT int32_t harnessShapeChange(void* plugin, HarnessTensor const* tensors, int32_t nbInputs);
HARNESS_EXPORT int32_t harnessEnqueue(void* plugin, HarnessTensor const* tensors, int32_t nbInputs, void const* const* inputs,
    void* output, void* workspace, uint64_t stream);

//! Fields to serialize: their number, or -1. They are valid until the plugin is asked again.
HARNESS_EXPORT int32_t harnessSerialize(void* plugin, HarnessField* fields, int32_t most);
