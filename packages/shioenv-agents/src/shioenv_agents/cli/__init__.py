"""Subcommands `tasks`, `preview` and `serve openenv`."""
