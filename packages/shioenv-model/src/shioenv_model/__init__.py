"""The model that executes nothing: an interpreter of Bash, records, functions and rules."""
