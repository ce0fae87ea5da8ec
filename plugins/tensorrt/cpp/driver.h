// The CUDA driver, opened when a plugin first needs it: as a table of functions whose every answer is checked.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <vector>

namespace gaussport
{

constexpr char const* kDRIVER_VARIABLE = "GAUSSPORT_CUDA_DRIVER"; //!< names a library to open in place of libcuda.so.1

class Driver
{
public:
    //! Open the driver library. Throws Error when it is not there or lacks a function.
    static std::shared_ptr<Driver const> open();

    //! The context that is current in this thread. Throws Error when there is none.
    CUcontext currentContext() const;

    //! Compute capability of the current context's device, such as 86.
    int32_t architecture() const;

    //! Load a cubin, or compile PTX that ends with a zero, into the current context.
    CUmodule load(std::vector<uint8_t> const& code, std::string const& symbol) const;

    //! Unload a module of `context`; what cannot be unloaded any more is left.
    void unload(CUcontext context, CUmodule module) const noexcept;

    //! The kernel of that name, allowed to use `sharedBytes` of shared memory.
    CUfunction kernel(CUmodule module, std::string const& symbol, uint32_t sharedBytes) const;

    //! Launch `programs` × 1 × 1 blocks of `threads` × 1 × 1. `parameters` point to one value each.
    void launch(CUfunction kernel, uint32_t programs, uint32_t threads, uint32_t sharedBytes, CUstream stream,
        std::vector<void*>& parameters, std::string const& symbol) const;

private:
    struct Functions
    {
        CUresult (*getErrorName)(CUresult, char const**);
        CUresult (*getErrorString)(CUresult, char const**);
        CUresult (*ctxGetCurrent)(CUcontext*);
        CUresult (*ctxGetDevice)(CUdevice*);
        CUresult (*ctxPushCurrent)(CUcontext);
        CUresult (*ctxPopCurrent)(CUcontext*);
        CUresult (*deviceGetAttribute)(int*, CUdevice_attribute, CUdevice);
        CUresult (*moduleLoadDataEx)(CUmodule*, void const*, unsigned int, CUjit_option*, void**);
        CUresult (*moduleUnload)(CUmodule);
        CUresult (*moduleGetFunction)(CUfunction*, CUmodule, char const*);
        CUresult (*funcSetAttribute)(CUfunction, CUfunction_attribute, int);
        CUresult (*launchKernel)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
            unsigned int, unsigned int, CUstream, void**, void**);
    };

    explicit Driver(void* library);

    //! Throws Error, naming the call, the driver's word for what happened and `what` it happened to.
    void check(CUresult result, char const* call, std::string const& what = {}) const;

    std::shared_ptr<void> mLibrary;
    Functions mCall{};
};

} // namespace gaussport
