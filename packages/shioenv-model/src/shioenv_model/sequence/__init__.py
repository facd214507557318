"""A neural network that predicts behaviors, with or without a memory."""
