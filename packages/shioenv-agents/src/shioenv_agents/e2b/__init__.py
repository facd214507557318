"""A server of the E2B API: the sandboxes of its Python SDK, on machines of this host."""
