"""Anyone's inputs rewritten for a system: what the system lacks becomes something that it has."""
