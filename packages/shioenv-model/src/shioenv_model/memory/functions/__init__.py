"""Functions that predict what commands print. They are handwritten; examples select one of them."""
