"""Exact and estimated scores of arguments' effects, for any `behave` callable."""
