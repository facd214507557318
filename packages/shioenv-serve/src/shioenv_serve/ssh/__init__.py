"""OpenSSH of a system, for visitors: the server, its log, and the machines behind it."""
