"""What happened: executions turned into behaviors, behaviors compared."""
