"""The protocol's words for the types of inputs."""

DATATYPES: dict[str, tuple[str, str]] = {
    "float32": ("FP32", "<f4"),
    "float16": ("FP32", "<f4"),
    "int64": ("INT64", "<i8"),
    "int32": ("INT32", "<i4"),
    "bool": ("BOOL", "|u1"),
}
"""By the type of an input, what the protocol calls what is sent for it, and how its numbers lie in a binary tensor."""
