// A CUDA driver of the tests' own: it launches nothing, and remembers every launch with all that the kernel would get.
#pragma once

#include <cstddef>
#include <cstdint>

#define RECORDING_EXPORT extern "C" __attribute__((visibility("default")))

struct RecordedLaunch
{
    uint64_t context;
    uint64_t stream;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t sharedBytes;
    uint32_t nbParameters;
    char const* symbol;
    char const* code;             //!< of the module that the kernel is in
    uint64_t codeBytes;
    uint64_t const* parameters;   //!< one value each, widened with zeros
    uint32_t const* parameterBytes;
};

//! Forget everything; be a GPU of this compute capability that gives one block at most so much shared memory.
RECORDING_EXPORT void recordingReset(int32_t architecture, uint32_t sharedLimitBytes);

//! Make a context current in this thread (0: none). Contexts are whatever numbers the tests choose.
RECORDING_EXPORT void recordingSetContext(uint64_t context);

//! A context is destroyed: pushing it is an error from now on.
RECORDING_EXPORT void recordingDestroyContext(uint64_t context);

//! Let the next call of a function, such as "cuLaunchKernel", fail with a CUresult.
RECORDING_EXPORT void recordingFail(char const* function, int32_t result);

RECORDING_EXPORT uint64_t recordingLaunches();
RECORDING_EXPORT void recordingLaunch(uint64_t index, RecordedLaunch* launch);

//! Modules that were loaded and not unloaded yet, and all that ever were.
RECORDING_EXPORT uint64_t recordingLiveModules();
RECORDING_EXPORT uint64_t recordingLoadedModules();
