"""Subcommands `predict`, `train` and `model`."""
