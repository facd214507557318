"""Hand-written rules of single commands, apart from records and functions."""
