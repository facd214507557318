"""Makes models from records."""
