"""The backends whose sandboxes are each a machine of its own, with a kernel of its own."""
