"""What this machine can run, what it cannot, and why: `gaussport doctor`. It imports nothing heavy and needs nothing.

finding    one answer in words          machine    cores, memory, GPUs, ONNX Runtime and its providers
bundle     one bundle's engines here    toolchain  what exporting and engine building need
"""
