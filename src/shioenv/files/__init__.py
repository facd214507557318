"""Durable files: locks, atomic writes, checksums, journals."""
