"""Datasets of synthesised, executed and scored inputs, stored without loss or duplication."""
