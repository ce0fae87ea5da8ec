"""gaussport: Gaussian-attention vision models, from a PyTorch checkpoint to production."""

__version__ = "0.1.0"
