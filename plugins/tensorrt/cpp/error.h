// What goes wrong inside the library: one sentence, thrown inside and logged at TensorRT's door (see guard.h).
#pragma once

#include <stdexcept>

namespace gaussport
{

class Error : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

} // namespace gaussport
