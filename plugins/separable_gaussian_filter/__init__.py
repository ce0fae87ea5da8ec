"""`SeparableGaussianFilter`: each head mixes values by a few Gaussian atoms over relative position (SSOG)."""
