"""Functions that predict what commands print: a hand-written space from which examples select."""
