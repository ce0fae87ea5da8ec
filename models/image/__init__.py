"""Pictures, on every route the same way: bytes to an upright sRGB picture (`decode`), picture to a tensor (`preprocess`).

Only numpy, Pillow and pydantic: training, verification, the server and the client share this package.
"""
