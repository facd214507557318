"""Records as tasks for agents: goals, prompts, the check, and a terminal to work in."""
