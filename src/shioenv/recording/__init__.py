"""Sessions turned into records: executed, scored, and looked at for what is volatile."""
