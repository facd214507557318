"""Tasks for frameworks of agents: a module for each, which needs the extra of the module's name."""
