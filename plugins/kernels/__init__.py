"""What the operators' GPU kernels share: launches as data, tensors for them, and compilation ahead of time.

Importing this package imports neither torch nor triton.
"""
