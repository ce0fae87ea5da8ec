"""Tests of what the attention looked at; a package, so that they share `plain_numpy`."""
