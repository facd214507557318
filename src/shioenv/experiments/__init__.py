"""The paper's experiments on this machine's executions, and our own beside them."""
