"""A network that writes behaviors, beside a memory."""
