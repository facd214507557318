"""Tasks for agents, the frameworks that run them, and previews of commands."""
