"""Shells whose machine persists between lines, and other shells with the same interface."""
