"""`LatentMemoryRouting`: tokens write to and read from K memory slots by Gaussian responsibilities (GMA)."""
