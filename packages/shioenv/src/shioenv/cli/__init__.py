"""The command line: a module for each subcommand or group, and modules that they share."""
