"""Tasks and machines in the frameworks of others."""
