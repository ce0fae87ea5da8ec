#include "driver.h"

#include "error.h"

#include <array>
#include <cstdlib>
#include <dlfcn.h>

namespace gaussport
{
namespace
{

constexpr uint32_t kSHARED_BYTES_WITHOUT_ASKING = 48U << 10U;

template <typename Function>
void resolve(void* library, char const* name, Function& function)
{
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr)
    {
        throw Error(std::string("the CUDA driver has no function ") + name + ": install a newer one");
    }
}

} // namespace

std::shared_ptr<Driver const> Driver::open()
{
    char const* const named = std::getenv(kDRIVER_VARIABLE);
    char const* const path = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
    {
        throw Error(std::string("the CUDA driver ") + path + " cannot be opened: a GPU and its driver are needed to run engines");
    }
    return std::shared_ptr<Driver const>(new Driver(library));
}

Driver::Driver(void* library)
    : mLibrary(library, [](void* handle) { dlclose(handle); })
{
    resolve(library, "cuGetErrorName", mCall.getErrorName);
    resolve(library, "cuGetErrorString", mCall.getErrorString);
    resolve(library, "cuCtxGetCurrent", mCall.ctxGetCurrent);
    resolve(library, "cuCtxGetDevice", mCall.ctxGetDevice);
    resolve(library, "cuCtxPushCurrent_v2", mCall.ctxPushCurrent);
    resolve(library, "cuCtxPopCurrent_v2", mCall.ctxPopCurrent);
    resolve(library, "cuDeviceGetAttribute", mCall.deviceGetAttribute);
    resolve(library, "cuModuleLoadDataEx", mCall.moduleLoadDataEx);
    resolve(library, "cuModuleUnload", mCall.moduleUnload);
    resolve(library, "cuModuleGetFunction", mCall.moduleGetFunction);
    resolve(library, "cuFuncSetAttribute", mCall.funcSetAttribute);
    resolve(library, "cuLaunchKernel", mCall.launchKernel);
}

CUcontext Driver::currentContext() const
{
    CUcontext context = nullptr;
    check(mCall.ctxGetCurrent(&context), "cuCtxGetCurrent");
    if (context == nullptr)
    {
        throw Error("no CUDA context is current in the thread that runs the engine");
    }
    return context;
}

int32_t Driver::architecture() const
{
    CUdevice device = 0;
    check(mCall.ctxGetDevice(&device), "cuCtxGetDevice");
    int major = 0;
    int minor = 0;
    check(mCall.deviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
    check(mCall.deviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute");
    return 10 * major + minor;
}

CUmodule Driver::load(std::vector<uint8_t> const& code, std::string const& symbol) const
{
    std::array<char, 2048> complaint{};
    auto size = reinterpret_cast<void*>(complaint.size()); // the driver takes numbers in the place of pointers
    std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    std::array<void*, 2> values{complaint.data(), size};
    CUmodule module = nullptr;
    auto const result = mCall.moduleLoadDataEx(
        &module, code.data(), static_cast<unsigned int>(options.size()), options.data(), values.data());
    complaint.back() = '\0';
    check(result, "cuModuleLoadDataEx", complaint[0] == '\0' ? symbol : symbol + ", " + complaint.data());
    return module;
}

void Driver::unload(CUcontext context, CUmodule module) const noexcept
{
    if (mCall.ctxPushCurrent(context) != CUDA_SUCCESS)
    {
        return; // the context was destroyed, and the module with it
    }
    mCall.moduleUnload(module);
    CUcontext popped = nullptr;
    mCall.ctxPopCurrent(&popped);
}

CUfunction Driver::kernel(CUmodule module, std::string const& symbol, uint32_t sharedBytes) const
{
    CUfunction function = nullptr;
    check(mCall.moduleGetFunction(&function, module, symbol.c_str()), "cuModuleGetFunction", symbol);
    if (sharedBytes > kSHARED_BYTES_WITHOUT_ASKING)
    {
        check(mCall.funcSetAttribute(
                  function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(sharedBytes)),
            "cuFuncSetAttribute", symbol);
    }
    return function;
}

void Driver::launch(CUfunction kernel, uint32_t programs, uint32_t threads, uint32_t sharedBytes, CUstream stream,
    std::vector<void*>& parameters, std::string const& symbol) const
{
    check(mCall.launchKernel(kernel, programs, 1, 1, threads, 1, 1, sharedBytes, stream, parameters.data(), nullptr),
        "cuLaunchKernel", symbol);
}

void Driver::check(CUresult result, char const* call, std::string const& what) const
{
    if (result == CUDA_SUCCESS)
    {
        return;
    }
    char const* name = nullptr;
    char const* meaning = nullptr;
    bool const known = mCall.getErrorName(result, &name) == CUDA_SUCCESS && mCall.getErrorString(result, &meaning) == CUDA_SUCCESS
        && name != nullptr && meaning != nullptr;
    auto const reason = known ? std::string(name) + ", " + meaning : "error " + std::to_string(static_cast<int>(result));
    throw Error(std::string(call) + (what.empty() ? "" : " of " + what) + " failed: " + reason);
}

} // namespace gaussport
