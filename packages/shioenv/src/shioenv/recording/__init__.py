"""Sessions turned into records: executed, scored, and checked for being volatile."""
