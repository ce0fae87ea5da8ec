// An operator's names and operands, as in its schema.py; tests hold the two against each other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gaussport
{

constexpr char const* kNAMESPACE = "gaussport";
constexpr char const* kVERSION = "1";
constexpr char const* kKERNELS = "kernels";

//! One input. Each axis is a letter, whose size all operands share, or a number, which is its size.
struct Operand
{
    std::string name;
    std::vector<std::string> axes;
    bool optional{false};
};

enum class AttributeType
{
    kINT32,
    kFLOAT32
};

struct AttributeSchema
{
    std::string name;
    AttributeType type;
};

struct OperatorSchema
{
    std::string name;
    std::vector<Operand> operands;
    std::vector<AttributeSchema> attributes;
    std::size_t outputLike; //!< the operand that the output has the shape of

    //! The letter that counts images: the first axis of the first operand.
    std::string const& batchLetter() const
    {
        return operands.front().axes.front();
    }
};

//! Every operator that has a folder beside this library's; written by CMake from the folders it finds.
std::vector<OperatorSchema> operators();

} // namespace gaussport
