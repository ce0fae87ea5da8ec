// Reads little-endian numbers, texts and lists from bytes that may be damaged: never past their end.
#pragma once

#include "error.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace gaussport
{

class Cursor
{
public:
    Cursor(uint8_t const* bytes, std::size_t size)
        : mNext(bytes)
        , mLeft(size)
    {
    }

    std::size_t left() const
    {
        return mLeft;
    }

    uint8_t const* take(std::size_t size)
    {
        if (size > mLeft)
        {
            throw Error("the kernel package is damaged: it ends in the middle of an entry");
        }
        uint8_t const* const taken = mNext;
        mNext += size;
        mLeft -= size;
        return taken;
    }

    template <typename Number>
    Number number()
    {
        static_assert(std::is_arithmetic_v<Number>);
        Number value;
        std::memcpy(&value, take(sizeof(Number)), sizeof(Number));
        return value;
    }

    std::string text()
    {
        auto const length = number<uint8_t>();
        auto const* const characters = reinterpret_cast<char const*>(take(length));
        return {characters, length};
    }

    //! A count of type Count and as many entries, each read by `read`.
    template <typename Count, typename Read>
    auto list(Read&& read) -> std::vector<decltype(read())>
    {
        std::vector<decltype(read())> entries;
        for (auto left = number<Count>(); left > 0; --left)
        {
            entries.push_back(read());
        }
        return entries;
    }

private:
    uint8_t const* mNext;
    std::size_t mLeft;
};

} // namespace gaussport
