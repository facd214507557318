"""Subcommands `serve ssh`, `serve openai` and `serve replay`."""
