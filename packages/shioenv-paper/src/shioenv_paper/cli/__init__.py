"""The subcommand `experiment`."""
