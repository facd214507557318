"""Sandboxes for running inputs: their interface, the backends, and a conformance suite."""
