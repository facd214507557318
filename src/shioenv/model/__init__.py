"""Models: inputs answered without executing them."""
