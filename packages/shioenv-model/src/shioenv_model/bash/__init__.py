"""Expansion, patterns, arithmetic and the other parts of an interpreter."""
