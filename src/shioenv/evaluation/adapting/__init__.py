"""Anyone's inputs rewritten for a system: generic words become names that exist there."""
