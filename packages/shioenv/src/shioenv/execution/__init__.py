"""Execution of jobs by many processes, on this machine or a cluster."""
