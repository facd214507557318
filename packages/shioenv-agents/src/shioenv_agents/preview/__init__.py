"""Previews: a host program's changes to the host's files, without changing them."""
