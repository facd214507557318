"""Inputs drawn from grammars: partly expanded inputs, options, policies and samplers."""
