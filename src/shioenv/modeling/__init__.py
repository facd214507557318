"""Words expanded by rule."""
