"""The command line: a module for each subcommand or group, and what the subcommands share."""
