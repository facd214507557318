"""OpenSSH of a system: the server, its log, and the machines of its visitors."""
