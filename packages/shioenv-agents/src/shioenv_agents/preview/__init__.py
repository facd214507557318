"""Previews: what a program of the host would change in the host's files, without changing them."""
