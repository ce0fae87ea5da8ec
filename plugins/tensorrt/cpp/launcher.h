// Runs the plans of one package in one CUDA context at a time: loads what a plan needs once, and launches it.
#pragma once

#include "driver.h"
#include "kernel_package.h"

#include <map>
#include <memory>
#include <vector>

namespace gaussport
{

//! Addresses of one run: the operands' and the output's (null: not given), and the workspace's.
struct Addresses
{
    std::vector<void const*> operands;
    void* workspace;
};

//! Bytes from the start of one workspace to the start of the next, for `batch` images.
uint64_t workspaceStride(uint64_t bytesPerImage, uint64_t batch);

//! Bytes of all workspaces of a plan for `batch` images.
uint64_t workspaceBytes(Plan const& plan, uint64_t batch);

//! The plan of a tactic for a GPU: machine code made for it, else PTX that is not newer; null when there is neither.
Plan const* planFor(Tactic const& tactic, int32_t architecture);

//! Belongs to one execution context of TensorRT, which calls it from one thread at a time.
class Launcher
{
public:
    //! Throws Error when there is no driver.
    explicit Launcher(std::shared_ptr<KernelPackage const> package);
    ~Launcher();
    Launcher(Launcher const&) = delete;
    Launcher(Launcher&&) = delete;
    Launcher& operator=(Launcher const&) = delete;
    Launcher& operator=(Launcher&&) = delete;

    //! Load the kernels of a variant by a tactic (an index; a variant with fewer takes its first) into the current context.
    //! Throws Error when the GPU has neither cubin nor PTX, or the driver refuses.
    void prepare(Variant const& variant, std::size_t tactic);

    //! Launch what `prepare` prepares, for `batch` images.
    void run(Variant const& variant, std::size_t tactic, int64_t batch, Addresses const& addresses, CUstream stream);

private:
    class Loaded;

    Loaded& loaded(Variant const& variant, std::size_t tactic);

    std::shared_ptr<KernelPackage const> mPackage;
    std::shared_ptr<Driver const> mDriver;
    std::map<std::pair<CUcontext, Tactic const*>, std::unique_ptr<Loaded>> mLoaded;
};

} // namespace gaussport
