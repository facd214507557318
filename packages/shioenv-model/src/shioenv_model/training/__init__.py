"""Training of models from records."""
