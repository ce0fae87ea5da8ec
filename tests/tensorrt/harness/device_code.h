// Reads from compiled kernels what a driver reads: the architecture, the kernels in them, and their parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct DeviceCode
{
    bool isText; //!< PTX
    int32_t architecture;
    std::string bytes;
};

//! False when the bytes are neither an ELF file for NVIDIA GPUs nor PTX.
bool readDeviceCode(void const* image, DeviceCode& code);

//! Sizes of a kernel's parameters, in order. False when there is no kernel of that name.
bool readParameters(DeviceCode const& code, std::string const& symbol, std::vector<std::size_t>& sizes);
