"""The paper's sampling experiments on this machine's executions, and three more."""
