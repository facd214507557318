"""Grammars: symbols, grammar files, their validation, and their binding to a system."""
