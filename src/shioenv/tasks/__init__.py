"""Records as tasks for agents: what to bring about, how that is checked, a terminal to do it in."""
