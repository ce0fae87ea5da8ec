#include "base64.h"

#include "error.h"

#include <array>
#include <string>

namespace gaussport
{
namespace
{

constexpr char kALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t kNONE = -1;

std::array<int8_t, 256> sextets()
{
    std::array<int8_t, 256> table{};
    table.fill(kNONE);
    for (int8_t value = 0; value < 64; ++value)
    {
        table[static_cast<uint8_t>(kALPHABET[value])] = value;
    }
    return table;
}

} // namespace

std::vector<uint8_t> decodeBase64(char const* text, std::size_t length)
{
    while (length > 0 && text[length - 1] == '\0')
    {
        --length;
    }
    if (length % 4 != 0)
    {
        throw Error("the kernel package is cut off: " + std::to_string(length) + " characters are no whole number of quartets");
    }
    std::size_t padding = 0;
    while (padding < 2 && length > padding && text[length - 1 - padding] == '=')
    {
        ++padding;
    }
    auto const table = sextets();
    std::vector<uint8_t> bytes;
    bytes.reserve(length / 4 * 3);
    uint32_t quartet = 0;
    for (std::size_t i = 0; i < length; ++i)
    {
        int8_t const value = i < length - padding ? table[static_cast<uint8_t>(text[i])] : int8_t{0};
        if (value == kNONE)
        {
            throw Error("the kernel package is damaged: character " + std::to_string(i) + " of its text is not base64");
        }
        quartet = quartet << 6U | static_cast<uint32_t>(value);
        if (i % 4 == 3)
        {
            bytes.push_back(static_cast<uint8_t>(quartet >> 16U));
            bytes.push_back(static_cast<uint8_t>(quartet >> 8U));
            bytes.push_back(static_cast<uint8_t>(quartet));
        }
    }
    bytes.resize(bytes.size() - padding);
    return bytes;
}

} // namespace gaussport
