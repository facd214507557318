"""Other places to run inputs: microVMs and Ray."""
