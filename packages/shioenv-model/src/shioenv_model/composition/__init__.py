"""Inputs of several commands, answered by asking a runner about each command."""
