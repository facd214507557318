"""What may be written: symbols, grammar files, their check, and their binding to a system."""
