"""Frozen value types: inputs, contexts, patches, behaviors, records. Standard library, no I/O."""
