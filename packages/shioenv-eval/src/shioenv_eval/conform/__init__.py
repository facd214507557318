"""Comparison of another implementation with the machine; every difference is minimised."""
