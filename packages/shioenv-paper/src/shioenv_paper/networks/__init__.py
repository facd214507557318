"""Networks for a short run on another machine, with PyTorch and NumPy alone."""
