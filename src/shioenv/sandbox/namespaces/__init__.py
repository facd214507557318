"""One module for each way to isolate a run."""
