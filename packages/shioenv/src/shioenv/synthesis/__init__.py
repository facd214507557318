"""Sampling of inputs from grammars: derivations, policies and samplers."""
