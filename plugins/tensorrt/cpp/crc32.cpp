#include "crc32.h"

#include <array>

namespace gaussport
{
namespace
{

constexpr std::array<uint32_t, 256> remainders()
{
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte)
    {
        uint32_t remainder = byte;
        for (int bit = 0; bit < 8; ++bit)
        {
            remainder = (remainder & 1U) != 0 ? 0xEDB88320U ^ remainder >> 1U : remainder >> 1U;
        }
        table[byte] = remainder;
    }
    return table;
}

constexpr auto kREMAINDERS = remainders();

} // namespace

uint32_t crc32(uint8_t const* bytes, std::size_t size)
{
    uint32_t remainder = 0xFFFFFFFFU;
    for (std::size_t i = 0; i < size; ++i)
    {
        remainder = kREMAINDERS[(remainder ^ bytes[i]) & 0xFFU] ^ remainder >> 8U;
    }
    return ~remainder;
}

} // namespace gaussport
