"""Handwritten rules for single commands, which use no records and no induced functions."""
