"""Tasks as Harbor folders, and their judge."""
