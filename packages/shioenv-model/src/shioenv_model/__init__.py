"""The execution-free model: an interpreter of Bash, records, functions and rules."""
