"""Where it runs: the contract of a sandbox, its backends, and the checks they pass."""
