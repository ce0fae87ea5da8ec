// Drives the plugin library without Python, so that sanitizers see it: its whole life, in two threads, and damaged packages.
//
//     gaussport_selftest LIBRARY OPERATOR FILE_WITH_BASE64 TYPE SHAPE…       SHAPE as 2x14x14x4x16; GAUSSPORT_CUDA_DRIVER set
#include "crc32.h"
#include "harness.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace
{

constexpr int32_t kCHAR = 6;
constexpr int32_t kINT8 = 3;
constexpr int32_t kDAMAGES = 200;
constexpr std::size_t kHEADER_BYTES = 24;

using Bytes = std::vector<uint8_t>;

void require(bool holds, char const* what)
{
    if (!holds)
    {
        std::fprintf(stderr, "selftest: %s\n%s", what, harnessTakeLog());
        std::exit(1);
    }
}

struct Node
{
    int32_t creator;
    std::vector<HarnessTensor> tensors; //!< inputs, then the output
    std::vector<void const*> inputs;
    std::vector<uint8_t> memory;

    int32_t nbInputs() const
    {
        return static_cast<int32_t>(tensors.size()) - 1;
    }
};

HarnessTensor tensor(std::string const& shape, int32_t type)
{
    HarnessTensor result{};
    result.type = type;
    std::istringstream words(shape);
    for (std::string word; std::getline(words, word, 'x'); ++result.rank)
    {
        result.dims[result.rank] = std::stoll(word);
    }
    std::memcpy(result.min, result.dims, sizeof(result.dims));
    std::memcpy(result.max, result.dims, sizeof(result.dims));
    return result;
}

void* recording(char const* name)
{
    static void* const kDRIVER = dlopen(std::getenv("GAUSSPORT_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    require(kDRIVER != nullptr, "GAUSSPORT_CUDA_DRIVER names no library");
    return dlsym(kDRIVER, name);
}

void setContext(uint64_t context)
{
    reinterpret_cast<void (*)(uint64_t)>(recording("recordingSetContext"))(context);
}

uint64_t count(char const* what)
{
    return reinterpret_cast<uint64_t (*)()>(recording(what))();
}

//! Everything that TensorRT asks while it builds, and one run after it. Returns whether the plugin was content.
bool live(void* plugin, Node& node, uint64_t stream)
{
    auto* const all = node.tensors.data();
    int32_t const inputs = node.nbInputs();
    std::vector<int32_t> types;
    for (int32_t i = 0; i < inputs; ++i)
    {
        types.push_back(all[i].type);
    }
    int32_t type = 0;
    HarnessTensor shape{};
    bool content = harnessOutputType(plugin, types.data(), inputs, &type) == 0;
    content = harnessOutputShape(plugin, all, inputs, &shape) == 0 && content;
    for (int32_t position = 0; position <= inputs; ++position)
    {
        content = harnessSupportsFormat(plugin, position, all, inputs) == 1 && content;
    }
    content = harnessConfigure(plugin, all, inputs) == 0 && content;
    auto const workspace = harnessWorkspace(plugin, all, inputs);
    if (workspace > node.memory.size())
    {
        return false; // a damaged package may ask for anything
    }
    int32_t tactics[8]{};
    int32_t const nbTactics = harnessTactics(plugin, tactics, 8);
    for (int32_t tactic = 0; tactic <= nbTactics; ++tactic)
    {
        content = harnessSetTactic(plugin, tactic) == 0 && content;
        content = harnessShapeChange(plugin, all, inputs) == 0 && content;
        content = harnessEnqueue(plugin, all, inputs, node.inputs.data(), node.memory.data(), node.memory.data(), stream) == 0
            && content;
    }
    return content;
}

void* create(Node const& node, Bytes const& package, int32_t type)
{
    HarnessField const field{"kernels", package.data(), type, static_cast<int32_t>(package.size())};
    return harnessCreate(node.creator, "selftest", &field, 1, 1);
}

Bytes serialized(void* plugin)
{
    HarnessField fields[8]{};
    require(harnessSerialize(plugin, fields, 8) >= 1 && std::strcmp(fields[0].name, "kernels") == 0, "nothing is serialized");
    auto const* const bytes = static_cast<uint8_t const*>(fields[0].data);
    return {bytes, bytes + fields[0].length};
}

void twoContexts(void* plugin, Node const& node)
{
    std::vector<std::thread> threads;
    for (uint64_t context = 1; context <= 2; ++context)
    {
        void* const attached = harnessAttach(plugin);
        require(attached != nullptr, "attachToContext gave nothing");
        threads.emplace_back([attached, context, own = node]() mutable {
            setContext(context);
            for (int32_t i = 0; i < 20; ++i)
            {
                require(live(attached, own, context), "a plugin in a thread was not content");
            }
            harnessDestroy(attached);
        });
    }
    for (auto& thread : threads)
    {
        thread.join();
    }
}

//! Flip bits, cut off or insert; where `hidden`, give the damaged body a checksum and length that fit.
Bytes damaged(Bytes package, std::mt19937& random, bool hidden)
{
    // Machine code is the driver's to check: damage goes before the first of it, or into the plans at the end.
    std::string const whole(package.begin(), package.end());
    std::size_t const front = whole.find("\x7f" "ELF");
    auto const at = [&](std::size_t size) {
        return random() % 3 == 0 ? random() % std::min(front, size) : size - 1 - random() % std::min<std::size_t>(size, 300);
    };
    switch (random() % 4)
    {
    case 0: package.resize(hidden ? at(package.size()) : random() % package.size()); break;
    case 1: package.insert(package.begin() + static_cast<std::ptrdiff_t>(at(package.size())), static_cast<uint8_t>(random())); break;
    default: package[at(package.size())] ^= static_cast<uint8_t>(1U << random() % 8U); break;
    }
    if (hidden && package.size() > kHEADER_BYTES)
    {
        uint64_t const length = package.size();
        uint32_t const checksum = gaussport::crc32(package.data() + kHEADER_BYTES, package.size() - kHEADER_BYTES);
        std::memcpy(package.data() + 12, &length, sizeof(length));
        std::memcpy(package.data() + 20, &checksum, sizeof(checksum));
    }
    return package;
}

void survivesDamage(Node& node, Bytes const& package)
{
    std::mt19937 random(1);
    int32_t passed = 0;
    for (int32_t i = 0; i < kDAMAGES; ++i)
    {
        bool const hidden = i % 4 != 0;
        Bytes const bytes = damaged(package, random, hidden);
        void* const plugin = create(node, bytes, kINT8);
        require(plugin == nullptr || hidden || bytes == package, "a damaged package was taken");
        if (plugin != nullptr)
        {
            live(plugin, node, 0);
            harnessDestroy(plugin);
            ++passed;
        }
        harnessTakeLog();
    }
    std::printf("%d damaged packages, %d of them consistent\n", kDAMAGES, passed);
}

} // namespace

int main(int argc, char** argv)
{
    require(argc > 5, "usage: LIBRARY OPERATOR FILE TYPE SHAPE...");
    Node node{};
    int32_t const creators = harnessLoad(argv[1]);
    require(creators > 0, "no creators");
    while (std::strcmp(harnessCreatorName(node.creator), argv[2]) != 0)
    {
        require(++node.creator < creators, "no creator of that name");
    }
    int32_t const type = std::stoi(argv[4]);
    node.memory.resize(64U << 20U);
    for (int i = 5; i < argc; ++i) // the output has the shape of one of the operands; none of ours asks which
    {
        node.tensors.push_back(tensor(argv[i], type));
        node.inputs.push_back(node.memory.data());
    }
    node.tensors.push_back(node.tensors.front());
    std::ifstream file(argv[3], std::ios::binary);
    Bytes const text{std::istreambuf_iterator<char>(file), {}};

    setContext(1);
    void* const plugin = create(node, text, kCHAR);
    require(plugin != nullptr, "createPlugin gave nothing");
    require(live(plugin, node, 0), "the plugin was not content");
    Bytes const package = serialized(plugin);
    twoContexts(plugin, node);
    harnessDestroy(plugin);

    void* const restored = create(node, package, kINT8);
    require(restored != nullptr && serialized(restored) == package, "what was serialized does not come back");
    require(live(restored, node, 0), "the restored plugin was not content");
    harnessDestroy(restored);
    require(count("recordingLaunches") > 0, "nothing was launched");

    survivesDamage(node, package);
    require(count("recordingLiveModules") == 0, "modules were left in the driver");
    std::puts("good");
    return 0;
}
