"""Training: an MLP from the traces of a program, and whole Transformers from inputs and outputs. Needs PyTorch."""
