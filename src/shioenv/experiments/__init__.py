"""The paper's experiments on this machine's executions, and two of our own."""
