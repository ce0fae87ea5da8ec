"""Streams: a client sends a text piece by piece and has the running prediction after each; the server keeps what a causal
model needs to go on, which does not grow with the text."""
