"""Text over HTTP: bodies to tokens, tokens to batches of like length, windows' answers to one."""
