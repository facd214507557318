"""Bash's language: the parser, word splitting, quoting, and expansion of words."""
