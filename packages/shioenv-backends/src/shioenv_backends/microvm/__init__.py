"""Backends whose sandboxes are separate virtual machines with their own kernels."""
