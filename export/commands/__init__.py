"""Subcommands of the `gaussport` command: options and a `run` each, nothing heavy until it runs."""
