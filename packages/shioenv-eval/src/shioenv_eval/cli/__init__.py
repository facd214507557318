"""Subcommands `suite`, `evaluate`, `conform`, `dataset report` and `grammar report`."""
