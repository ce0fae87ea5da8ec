// What must hold of a kernel package before anything in it is used, beyond its being readable.
#pragma once

#include "kernel_package.h"

namespace gaussport
{

//! Throws Error unless every index leads somewhere, every argument fits its parameter, and all of it fits the operator.
void checkKernelPackage(KernelPackage const& package, OperatorSchema const& schema);

} // namespace gaussport
