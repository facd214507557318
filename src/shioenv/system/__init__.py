"""The systems whose behavior is recorded: declared, built, and what a pristine one looks like."""
