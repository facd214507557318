"""Where inputs run: the contract of a sandbox, its backends, and the checks that they pass."""
