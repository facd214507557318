"""Convert executions into behaviors, and compare behaviors."""
