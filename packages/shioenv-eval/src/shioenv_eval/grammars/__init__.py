"""Grammars checked, compared with inputs and help texts, and drafted."""
