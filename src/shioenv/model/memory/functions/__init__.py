"""Functions that explain what commands print: a space written by us, from which examples choose."""
