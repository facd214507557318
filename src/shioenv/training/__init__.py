"""Making models of records."""
