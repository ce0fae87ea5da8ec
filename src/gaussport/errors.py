"""Every error a user may cause, as one tree; each is one sentence that names the thing, the fault and the cure.

    GaussportError
    ├── UsageError              the command line or a call asks for something that cannot be   exit code 2
    ├── CheckpointError         the checkpoint cannot be read, or is not what it claims        exit code 1
    ├── ConfigurationError      a model configuration is impossible or disagrees with weights  exit code 1
    ├── ExportError             the module cannot become a bundle                              exit code 1
    │   └── ProofError          ... it can, but its answers differ from PyTorch's              exit code 1
    ├── EngineError             TensorRT is missing, or cannot build or run this engine          exit code 1
    ├── BundleError             the bundle is missing, damaged or from another version         exit code 1
    ├── DataError               a data set is missing, empty or unlabelled                     exit code 1
    ├── ImageError              these bytes are not a picture we can use                       exit code 1
    ├── TextError               this text cannot be made into tokens                           exit code 1
    └── ServingError            the endpoint cannot start or cannot answer                     exit code 1

The command line turns them into exit codes (`gaussport.cli`); the server turns them into HTTP codes
(`gaussport.serving.errors`). Nothing else maps errors.
"""


class GaussportError(Exception):
    """Base of every error that is the user's to mend. `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageError(GaussportError):
    """The command line, or a call, asks for something that cannot be."""

    exit_code = 2


class CheckpointError(GaussportError):
    """The checkpoint cannot be read, or is not what it claims to be."""


class ConfigurationError(GaussportError):
    """A model configuration is impossible, or disagrees with the weights beside it."""


class ExportError(GaussportError):
    """The module cannot be turned into a bundle."""


class ProofError(ExportError):
    """The exported model's answers differ from the module's by more than the stated tolerance."""


class EngineError(GaussportError):
    """TensorRT is missing, or cannot build this engine."""


class BundleError(GaussportError):
    """The bundle is missing, damaged, or written by an incompatible version."""


class DataError(GaussportError):
    """A data set is missing, empty, or not laid out as root/class/image."""


class ImageError(GaussportError):
    """These bytes are not a picture that can be classified. `code` is the stable word of the HTTP answer."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class TextError(GaussportError):
    """This text cannot be made into a model's tokens. `code` is the stable word of the HTTP answer."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class ServingError(GaussportError):
    """The endpoint cannot start, or cannot answer this request."""
