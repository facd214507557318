"""The command line: one module per subcommand, each a call into the packages above."""
