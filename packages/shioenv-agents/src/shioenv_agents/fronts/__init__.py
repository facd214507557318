"""Adapters of tasks and machines to other frameworks."""
