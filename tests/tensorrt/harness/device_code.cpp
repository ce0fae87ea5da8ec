#include "device_code.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <elf.h>

namespace
{

constexpr uint16_t kEM_CUDA = 190;
constexpr unsigned char kABI_WITH_ARCHITECTURE_IN_BYTE_1 = 8;
constexpr uint8_t kATTRIBUTE_WITH_BYTES = 4;
constexpr uint8_t kKERNEL_PARAMETER = 0x17;

Elf64_Shdr const* sections(std::string const& elf, uint16_t& count)
{
    auto const* const header = reinterpret_cast<Elf64_Ehdr const*>(elf.data());
    count = header->e_shnum;
    return reinterpret_cast<Elf64_Shdr const*>(elf.data() + header->e_shoff);
}

//! The bytes of a section by its name; empty when it is not there.
std::string section(std::string const& elf, std::string const& name)
{
    auto const* const header = reinterpret_cast<Elf64_Ehdr const*>(elf.data());
    uint16_t count = 0;
    auto const* const all = sections(elf, count);
    char const* const names = elf.data() + all[header->e_shstrndx].sh_offset;
    auto const* const found = std::find_if(all, all + count, [&](Elf64_Shdr const& one) { return name == names + one.sh_name; });
    return found == all + count ? "" : elf.substr(found->sh_offset, found->sh_size);
}

//! A file's length follows from where its section and program headers end.
std::size_t elfLength(Elf64_Ehdr const* header)
{
    auto const sectionsEnd = header->e_shoff + std::size_t{header->e_shentsize} * header->e_shnum;
    auto const programsEnd = header->e_phoff + std::size_t{header->e_phentsize} * header->e_phnum;
    return std::max<std::size_t>(sectionsEnd, programsEnd);
}

//! The attributes of a kernel: format, attribute, then a size and bytes, or a value of two bytes.
bool cubinParameters(std::string const& elf, std::string const& symbol, std::vector<std::size_t>& sizes)
{
    std::string const info = section(elf, ".nv.info." + symbol);
    if (info.empty() || section(elf, ".text." + symbol).empty())
    {
        return false;
    }
    for (std::size_t at = 0; at + 4 <= info.size();)
    {
        auto const format = static_cast<uint8_t>(info[at]);
        auto const attribute = static_cast<uint8_t>(info[at + 1]);
        uint16_t size = 0;
        std::memcpy(&size, info.data() + at + 2, sizeof(size));
        at += 4;
        if (format != kATTRIBUTE_WITH_BYTES)
        {
            continue;
        }
        if (attribute == kKERNEL_PARAMETER)
        {
            uint16_t ordinal = 0;
            uint32_t flags = 0;
            std::memcpy(&ordinal, info.data() + at + 4, sizeof(ordinal));
            std::memcpy(&flags, info.data() + at + 8, sizeof(flags));
            sizes.resize(std::max<std::size_t>(sizes.size(), ordinal + 1U));
            sizes[ordinal] = flags >> 18U;
        }
        at += size;
    }
    return true;
}

bool ptxParameters(std::string const& text, std::string const& symbol, std::vector<std::size_t>& sizes)
{
    auto const entry = text.find(".entry " + symbol + "(");
    if (entry == std::string::npos)
    {
        return false;
    }
    std::string const list = text.substr(entry, text.find(')', entry) - entry);
    for (auto at = list.find(".param ."); at != std::string::npos; at = list.find(".param .", at + 1))
    {
        auto const bits = std::strtoul(list.c_str() + at + std::strlen(".param .") + 1, nullptr, 10); // ".u64", ".f32"
        sizes.push_back(bits / 8);
    }
    return true;
}

} // namespace

bool readDeviceCode(void const* image, DeviceCode& code)
{
    auto const* const bytes = static_cast<char const*>(image);
    if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0)
    {
        auto const* const header = static_cast<Elf64_Ehdr const*>(image);
        bool const newer = header->e_ident[EI_ABIVERSION] >= kABI_WITH_ARCHITECTURE_IN_BYTE_1;
        code.isText = false;
        code.architecture = static_cast<int32_t>(header->e_flags >> (newer ? 8U : 0U) & 0xFFU);
        code.bytes.assign(bytes, elfLength(header));
        return header->e_machine == kEM_CUDA;
    }
    code.isText = true;
    code.bytes = bytes; // ends with a zero
    auto const target = code.bytes.find(".target sm_");
    if (target == std::string::npos)
    {
        return false;
    }
    code.architecture = static_cast<int32_t>(std::strtol(code.bytes.c_str() + target + std::strlen(".target sm_"), nullptr, 10));
    return true;
}

bool readParameters(DeviceCode const& code, std::string const& symbol, std::vector<std::size_t>& sizes)
{
    return code.isText ? ptxParameters(code.bytes, symbol, sizes) : cubinParameters(code.bytes, symbol, sizes);
}
