"""Datasets: synthesised, executed and scored inputs, kept so that nothing is lost or doubled."""
