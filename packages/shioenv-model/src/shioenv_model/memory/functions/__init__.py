"""Functions that explain what commands print: we wrote the space, examples choose from it."""
