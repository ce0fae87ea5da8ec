"""The operators as TensorRT plugins: the C++ library, and what a node carries so that the library can run it.

`attributes.plugin_attributes` gives a node its attributes, compiled kernels among them (needs torch and triton);
`library.build_library` builds or finds `libgaussport_plugins.so` (needs cmake and a C++ compiler). Importing this package
needs neither, nor TensorRT.
"""

from gaussport.plugins.operator import DOMAIN, OPSET_VERSION

NAMESPACE = DOMAIN
"""Value of a node's `plugin_namespace`."""

VERSION = str(OPSET_VERSION)
"""Value of a node's `plugin_version`, and the version that each plugin has in TensorRT's registry."""

KERNELS = "kernels"
"""Name of the attribute (and plugin field) that holds the kernel package."""

DRIVER_VARIABLE = "GAUSSPORT_CUDA_DRIVER"
"""Environment variable naming the driver library to open in place of libcuda.so.1."""

__all__ = ["DRIVER_VARIABLE", "KERNELS", "NAMESPACE", "VERSION"]
