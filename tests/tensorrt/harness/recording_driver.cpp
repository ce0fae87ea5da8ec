#include "recording_driver.h"

#include "device_code.h"

#include <cuda.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

struct CUmod_st
{
    uint64_t context;
    DeviceCode code;
};

struct CUfunc_st
{
    CUmodule module;
    std::string symbol;
    std::vector<std::size_t> parameterBytes;
    uint32_t sharedLimitBytes;
};

namespace
{

constexpr uint32_t kSHARED_BYTES_WITHOUT_ASKING = 48U << 10U;
constexpr uint32_t kMOST_THREADS = 1024;

struct Launch
{
    RecordedLaunch facts;
    std::string symbol;
    std::string code;
    std::vector<uint64_t> parameters;
    std::vector<uint32_t> parameterBytes;
};

struct Gpu
{
    std::mutex mutex;
    int32_t architecture{86};
    uint32_t sharedLimitBytes{99U << 10U};
    std::set<uint64_t> destroyed;
    std::map<std::string, CUresult> failures;
    std::set<CUmodule> live;
    std::vector<std::unique_ptr<CUmod_st>> modules;
    std::vector<std::unique_ptr<CUfunc_st>> functions;
    std::vector<std::unique_ptr<Launch>> launches;
};

Gpu& gpu()
{
    static Gpu instance;
    return instance;
}

std::vector<uint64_t>& contexts()
{
    thread_local std::vector<uint64_t> stack;
    return stack;
}

//! The failure that was ordered for this call, once.
CUresult ordered(char const* function)
{
    auto const found = gpu().failures.find(function);
    if (found == gpu().failures.end())
    {
        return CUDA_SUCCESS;
    }
    CUresult const result = found->second;
    gpu().failures.erase(found);
    return result;
}

uint64_t current()
{
    return contexts().empty() ? 0 : contexts().back();
}

} // namespace

#define RECORDED(function)                                                                                                       \
    std::lock_guard<std::mutex> const lock(gpu().mutex);                                                                         \
    if (CUresult const result = ordered(function); result != CUDA_SUCCESS)                                                       \
    {                                                                                                                            \
        return result;                                                                                                           \
    }

#pragma GCC visibility push(default)

extern "C" CUresult cuGetErrorName(CUresult error, char const** name)
{
    static std::map<CUresult, char const*> const kNAMES{{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"}, {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"}, {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"}, {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}};
    auto const found = kNAMES.find(error);
    *name = found == kNAMES.end() ? nullptr : found->second;
    return found == kNAMES.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

extern "C" CUresult cuGetErrorString(CUresult /*error*/, char const** meaning)
{
    *meaning = "as the recording driver was told or found";
    return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetCurrent(CUcontext* context)
{
    RECORDED("cuCtxGetCurrent")
    *context = reinterpret_cast<CUcontext>(current());
    return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetDevice(CUdevice* device)
{
    RECORDED("cuCtxGetDevice")
    *device = 0;
    return current() == 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

extern "C" CUresult cuCtxPushCurrent(CUcontext context)
{
    RECORDED("cuCtxPushCurrent")
    auto const number = reinterpret_cast<uint64_t>(context);
    if (gpu().destroyed.count(number) != 0)
    {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    contexts().push_back(number);
    return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxPopCurrent(CUcontext* context)
{
    RECORDED("cuCtxPopCurrent")
    *context = reinterpret_cast<CUcontext>(current());
    contexts().pop_back();
    return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice /*device*/)
{
    RECORDED("cuDeviceGetAttribute")
    bool const isMajor = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    *value = isMajor ? gpu().architecture / 10 : gpu().architecture % 10;
    return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleLoadDataEx(CUmodule* module, void const* image, unsigned int nbOptions, CUjit_option* options, void** values)
{
    RECORDED("cuModuleLoadDataEx")
    if (current() == 0)
    {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    DeviceCode code{};
    if (!readDeviceCode(image, code))
    {
        for (unsigned int i = 0; i < nbOptions; ++i)
        {
            if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            {
                std::strcpy(static_cast<char*>(values[i]), "no kernels in it");
            }
        }
        return CUDA_ERROR_INVALID_IMAGE;
    }
    bool const runs = code.isText ? code.architecture <= gpu().architecture : code.architecture == gpu().architecture;
    if (!runs)
    {
        return code.isText ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    gpu().modules.push_back(std::make_unique<CUmod_st>(CUmod_st{current(), std::move(code)}));
    *module = gpu().modules.back().get();
    gpu().live.insert(*module);
    return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleUnload(CUmodule module)
{
    RECORDED("cuModuleUnload")
    bool const own = gpu().live.count(module) != 0 && module->context == current();
    return own && gpu().live.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

extern "C" CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, char const* name)
{
    RECORDED("cuModuleGetFunction")
    std::vector<std::size_t> sizes;
    if (gpu().live.count(module) == 0 || !readParameters(module->code, name, sizes))
    {
        return CUDA_ERROR_NOT_FOUND;
    }
    gpu().functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{module, name, sizes, kSHARED_BYTES_WITHOUT_ASKING}));
    *function = gpu().functions.back().get();
    return CUDA_SUCCESS;
}

extern "C" CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    RECORDED("cuFuncSetAttribute")
    bool const good = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0
        && static_cast<uint32_t>(value) <= gpu().sharedLimitBytes;
    if (!good)
    {
        return CUDA_ERROR_INVALID_VALUE;
    }
    function->sharedLimitBytes = static_cast<uint32_t>(value);
    return CUDA_SUCCESS;
}

extern "C" CUresult cuLaunchKernel(CUfunction function, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
    unsigned int blockX, unsigned int blockY, unsigned int blockZ, unsigned int sharedBytes, CUstream stream, void** parameters,
    void** extra)
{
    RECORDED("cuLaunchKernel")
    uint64_t const threads = uint64_t{blockX} * blockY * blockZ;
    bool const possible = gridX >= 1 && gridX <= 0x7FFFFFFFU && gridY >= 1 && gridY <= 0xFFFFU && gridZ >= 1
        && gridZ <= 0xFFFFU && threads >= 1 && threads <= kMOST_THREADS && sharedBytes <= function->sharedLimitBytes
        && parameters != nullptr && extra == nullptr;
    if (!possible || gpu().live.count(function->module) == 0)
    {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (function->module->context != current())
    {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    auto launch = std::make_unique<Launch>();
    launch->symbol = function->symbol;
    launch->code = function->module->code.bytes;
    for (std::size_t i = 0; i < function->parameterBytes.size(); ++i)
    {
        uint64_t value = 0;
        std::memcpy(&value, parameters[i], function->parameterBytes[i]);
        launch->parameters.push_back(value);
        launch->parameterBytes.push_back(static_cast<uint32_t>(function->parameterBytes[i]));
    }
    launch->facts = {current(), reinterpret_cast<uint64_t>(stream), {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, sharedBytes,
        static_cast<uint32_t>(launch->parameters.size()), launch->symbol.c_str(), launch->code.data(), launch->code.size(),
        launch->parameters.data(), launch->parameterBytes.data()};
    gpu().launches.push_back(std::move(launch));
    return CUDA_SUCCESS;
}

#pragma GCC visibility pop

void recordingReset(int32_t architecture, uint32_t sharedLimitBytes)
{
    std::lock_guard<std::mutex> const lock(gpu().mutex);
    gpu().architecture = architecture;
    gpu().sharedLimitBytes = sharedLimitBytes;
    gpu().destroyed.clear();
    gpu().failures.clear();
    gpu().launches.clear();
}

void recordingSetContext(uint64_t context)
{
    contexts().clear();
    if (context != 0)
    {
        contexts().push_back(context);
    }
}

void recordingDestroyContext(uint64_t context)
{
    std::lock_guard<std::mutex> const lock(gpu().mutex);
    gpu().destroyed.insert(context);
    for (auto const& module : gpu().modules)
    {
        if (module->context == context)
        {
            gpu().live.erase(module.get());
        }
    }
}

void recordingFail(char const* function, int32_t result)
{
    std::lock_guard<std::mutex> const lock(gpu().mutex);
    gpu().failures[function] = static_cast<CUresult>(result);
}

uint64_t recordingLaunches()
{
    std::lock_guard<std::mutex> const lock(gpu().mutex);
    return gpu().launches.size();
}

void recordingLaunch(uint64_t index, RecordedLaunch* launch)
{
    std::lock_guard<std::mutex> const lock(gpu().mutex);
    *launch = gpu().launches[index]->facts;
}

uint64_t recordingLiveModules()
{
    std::lock_guard<std::mutex> const lock(gpu().mutex);
    return gpu().live.size();
}

uint64_t recordingLoadedModules()
{
    std::lock_guard<std::mutex> const lock(gpu().mutex);
    return gpu().modules.size();
}
