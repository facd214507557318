"""A network that writes behaviors, beside a memory or by itself."""
