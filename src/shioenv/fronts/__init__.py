"""Tasks where agents are: one module for each framework, which needs the extra of its name."""
