"""Compiles a planned launch ahead of time: Triton source → cubin for one architecture, and PTX that newer ones can load.

No GPU is needed. Triton keeps compiled kernels in its own cache (TRITON_CACHE_DIR), keyed by a hash of the source of the
kernel and of all it calls, of constants, argument types, options, target and compiler version; compiling again what is
there reads files. `KernelImage` is all that a launcher needs besides the plan: see `KernelImage.parameters`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gaussport.errors import ExportError
from gaussport.plugins.kernels.architectures import ARCHITECTURES, PORTABLE_PTX
from gaussport.plugins.kernels.launch import Buffer, Constant, Launch

WARP = 32


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter, in order: `type` is a C type of the driver's parameter block, `source` what fills it."""

    name: str
    type: str  # "pointer", "int32" or "float32"
    source: str  # "buffer", "number", or "scratch" for the hidden ones at the end


@dataclass(frozen=True)
class KernelImage:
    """A kernel compiled for one architecture.

    Launch with `num_warps` × 32 threads in x, `shared_bytes` of dynamic shared memory (above 48 kB the function attribute
    must be raised first) and `parameters` in order. Hidden scratch pointers are null: kernels needing them are refused.
    """

    symbol: str
    architecture: int
    cubin: bytes
    ptx: str
    num_warps: int
    shared_bytes: int
    parameters: tuple[Parameter, ...]
    constants: Mapping[str, Constant]

    @property
    def content_hash(self) -> str:
        """sha256 over everything that a launch depends on: equal images may be stored once."""
        facts = [self.symbol, self.architecture, self.num_warps, self.shared_bytes]
        digest = hashlib.sha256(json.dumps(facts).encode())
        for part in (self.cubin, self.ptx.encode()):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()


def compile_launch(launch: Launch, architecture: int) -> KernelImage:
    """Compile one launch for a compute capability such as 86.

    Raises:
        ExportError: the architecture is not one we compile for, the kernels were imported for the interpreter, the tiles do
            not fit the architecture, or Triton asks for scratch memory that our launchers do not give.
    """
    if architecture not in ARCHITECTURES:
        raise ExportError(f"sm_{architecture} is not an architecture we compile for: choose one of {list(ARCHITECTURES)}")
    if not isinstance(launch.kernel, triton.JITFunction):
        raise ExportError("TRITON_INTERPRET is set, so kernels cannot be compiled in this process: unset it and start again")
    options = {**launch.options}
    if architecture in PORTABLE_PTX:
        options["ptx_version"] = PORTABLE_PTX[architecture]
    try:
        with triton.knobs.compilation.scope():
            triton.knobs.compilation.disable_line_info = True  # three quarters of a cubin, and the paths of this machine
            compiled = triton.compile(_source(launch), target=GPUTarget("cuda", architecture, WARP), options=options)
    except Exception as error:
        raise ExportError(f"{launch.name} does not compile for sm_{architecture} with {dict(launch.constants)}") from error
    metadata = compiled.metadata
    scratch = metadata.global_scratch_size + metadata.profile_scratch_size
    if scratch:
        raise ExportError(f"{launch.name} for sm_{architecture} asks for {scratch} bytes of scratch, which nobody gives")
    return KernelImage(
        symbol=metadata.name,
        architecture=architecture,
        cubin=compiled.asm["cubin"],
        ptx=compiled.asm["ptx"],
        num_warps=metadata.num_warps,
        shared_bytes=metadata.shared,
        parameters=_parameters(launch),
        constants=dict(launch.constants),
    )


def _source(launch: Launch) -> ASTSource:
    signature, divisible = {}, {}
    for position, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
            continue
        argument = launch.arguments[name]
        if isinstance(argument, Buffer):
            signature[name] = f"*{argument.dtype}"
            divisible[(position,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32" if isinstance(argument, float) else "i32"
    return ASTSource(launch.kernel, signature, constexprs=dict(launch.constants), attrs=divisible)


def _parameters(launch: Launch) -> tuple[Parameter, ...]:
    kinds = {Buffer: ("pointer", "buffer"), int: ("int32", "number"), float: ("float32", "number")}
    visible = (
        Parameter(name, *kinds[type(launch.arguments[name])])
        for name in launch.kernel.arg_names
        if name not in launch.constants
    )
    hidden = (Parameter("global_scratch", "pointer", "scratch"), Parameter("profile_scratch", "pointer", "scratch"))
    return (*visible, *hidden)
