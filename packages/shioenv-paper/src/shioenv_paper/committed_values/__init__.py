"""Committed values of `shioenv reproduce`."""
