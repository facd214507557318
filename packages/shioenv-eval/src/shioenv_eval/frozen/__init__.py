"""Frozen answers: recorded ground truth, the files of their machine, and their checker."""
