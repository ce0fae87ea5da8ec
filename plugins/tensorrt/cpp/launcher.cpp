#include "launcher.h"

#include "error.h"
#include "log.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

namespace gaussport
{
namespace
{

constexpr uint32_t kTHREADS_PER_WARP = 32;
constexpr uint64_t kWORKSPACE_ALIGNMENT = 256;
constexpr uintptr_t kOPERAND_ALIGNMENT = 16; // what the kernels were compiled for
constexpr uint64_t kMOST_PROGRAMS = std::numeric_limits<int32_t>::max();

//! "sm_86, sm_89 and PTX for sm_89 and newer": what a tactic could run on.
std::string describe(Tactic const& tactic)
{
    std::set<std::string> words;
    for (auto const& plan : tactic)
    {
        auto const name = "sm_" + std::to_string(plan.target.architecture);
        words.insert(plan.target.kind == CodeKind::kCUBIN ? name : "PTX for " + name + " and newer");
    }
    std::string text;
    for (auto const& word : words)
    {
        text += (text.empty() ? "" : ", ") + word;
    }
    return text;
}

} // namespace

uint64_t workspaceStride(uint64_t bytesPerImage, uint64_t batch)
{
    return (bytesPerImage * batch + kWORKSPACE_ALIGNMENT - 1) / kWORKSPACE_ALIGNMENT * kWORKSPACE_ALIGNMENT;
}

uint64_t workspaceBytes(Plan const& plan, uint64_t batch)
{
    uint64_t total = 0;
    for (uint64_t const bytes : plan.workspaceBytes)
    {
        total += workspaceStride(bytes, batch);
    }
    return total;
}

Plan const* planFor(Tactic const& tactic, int32_t architecture)
{
    Plan const* portable = nullptr;
    for (auto const& plan : tactic)
    {
        if (plan.target.kind == CodeKind::kCUBIN && plan.target.architecture == architecture)
        {
            return &plan;
        }
        bool const newer = portable == nullptr || plan.target.architecture > portable->target.architecture;
        if (plan.target.kind == CodeKind::kPTX && plan.target.architecture <= architecture && newer)
        {
            portable = &plan;
        }
    }
    return portable;
}

//! The kernels of one plan in one context, unloaded with it.
class Launcher::Loaded
{
public:
    Loaded(Plan const& plan, KernelPackage const& package, std::shared_ptr<Driver const> driver, CUcontext context)
        : mPlan(plan)
        , mPackage(package)
        , mDriver(std::move(driver))
        , mContext(context)
    {
        for (auto const& launch : plan.launches)
        {
            auto const& image = package.images[launch.image];
            mModules.emplace_back(mDriver->load(image.code, image.symbol), Unload{mDriver.get(), mContext});
            mKernels.push_back(mDriver->kernel(mModules.back().get(), image.symbol, image.sharedBytes));
        }
    }

    void run(int64_t batch, Addresses const& addresses, CUstream stream)
    {
        checkAddresses(batch, addresses);
        auto workspaces = workspacePointers(batch, addresses.workspace);
        for (std::size_t i = 0; i < mPlan.launches.size(); ++i)
        {
            auto const& launch = mPlan.launches[i];
            auto const& image = mPackage.images[launch.image];
            uint64_t const programs = launch.programsPerImage * static_cast<uint64_t>(batch);
            if (programs > kMOST_PROGRAMS)
            {
                throw Error("a batch of " + std::to_string(batch) + " needs " + std::to_string(programs)
                    + " programs, more than a GPU takes in one launch: use a smaller batch");
            }
            std::vector<Value> values = arguments(launch, addresses, workspaces);
            std::vector<void*> parameters;
            std::transform(values.begin(), values.end(), std::back_inserter(parameters), [](Value& value) { return &value; });
            mDriver->launch(mKernels[i], static_cast<uint32_t>(programs), image.numWarps * kTHREADS_PER_WARP, image.sharedBytes,
                stream, parameters, image.symbol);
        }
    }

private:
    struct Unload
    {
        using pointer = CUmodule;

        void operator()(CUmodule module) const noexcept
        {
            driver->unload(context, module);
        }

        Driver const* driver;
        CUcontext context;
    };

    union Value //!< one parameter; the driver reads as many bytes as the kernel declares
    {
        void const* pointer;
        int32_t int32;
        float float32;
    };

    void checkAddresses(int64_t batch, Addresses const& addresses) const
    {
        if (addresses.workspace == nullptr && workspaceBytes(mPlan, static_cast<uint64_t>(batch)) > 0)
        {
            throw Error("no workspace was given");
        }
        auto const all = addresses.operands;
        bool const aligned = std::all_of(all.begin(), all.end(),
            [](void const* address) { return reinterpret_cast<uintptr_t>(address) % kOPERAND_ALIGNMENT == 0; });
        if (!aligned || reinterpret_cast<uintptr_t>(addresses.workspace) % kOPERAND_ALIGNMENT != 0)
        {
            throw Error("an operand, the output or the workspace is not aligned to 16 bytes");
        }
    }

    std::vector<void const*> workspacePointers(int64_t batch, void* workspace) const
    {
        std::vector<void const*> pointers;
        auto* next = static_cast<uint8_t*>(workspace);
        for (uint64_t const bytes : mPlan.workspaceBytes)
        {
            pointers.push_back(next);
            next += workspaceStride(bytes, static_cast<uint64_t>(batch));
        }
        return pointers;
    }

    static std::vector<Value> arguments(
        Launch const& launch, Addresses const& addresses, std::vector<void const*> const& workspaces)
    {
        std::vector<Value> values;
        for (auto const& argument : launch.arguments)
        {
            Value value{nullptr};
            switch (argument.source)
            {
            case ArgumentSource::kOPERAND: value.pointer = addresses.operands[argument.index]; break;
            case ArgumentSource::kWORKSPACE: value.pointer = workspaces[argument.index]; break;
            case ArgumentSource::kINT32: value.int32 = argument.int32; break;
            case ArgumentSource::kFLOAT32: value.float32 = argument.float32; break;
            case ArgumentSource::kNULL: break;
            }
            values.push_back(value);
        }
        return values;
    }

    Plan const& mPlan;
    KernelPackage const& mPackage;
    std::shared_ptr<Driver const> mDriver;
    CUcontext mContext;
    std::vector<std::unique_ptr<CUmod_st, Unload>> mModules;
    std::vector<CUfunction> mKernels;
};

Launcher::Launcher(std::shared_ptr<KernelPackage const> package)
    : mPackage(std::move(package))
    , mDriver(Driver::open())
{
}

Launcher::~Launcher() = default;

void Launcher::prepare(Variant const& variant, std::size_t tactic)
{
    loaded(variant, tactic);
}

void Launcher::run(Variant const& variant, std::size_t tactic, int64_t batch, Addresses const& addresses, CUstream stream)
{
    loaded(variant, tactic).run(batch, addresses, stream);
}

Launcher::Loaded& Launcher::loaded(Variant const& variant, std::size_t tactic)
{
    auto const& chosen = variant.tactics[tactic < variant.tactics.size() ? tactic : 0];
    CUcontext const context = mDriver->currentContext();
    auto& entry = mLoaded[{context, &chosen}];
    if (entry == nullptr)
    {
        int32_t const architecture = mDriver->architecture();
        Plan const* plan = planFor(chosen, architecture);
        if (plan == nullptr)
        {
            plan = planFor(variant.tactics.front(), architecture);
        }
        if (plan == nullptr)
        {
            throw Error("there are no kernels for this GPU, sm_" + std::to_string(architecture) + ": the engine has "
                + describe(variant.tactics.front()) + "; build it again for this GPU");
        }
        entry = std::make_unique<Loaded>(*plan, *mPackage, mDriver, context);
        log(Severity::kVERBOSE, "gaussport: loaded \"" + plan->name + "\" for sm_" + std::to_string(plan->target.architecture)
                + (plan->target.kind == CodeKind::kPTX ? " from PTX" : ""));
    }
    return *entry;
}

} // namespace gaussport
