"""From a program to the weights of the Transformer that runs it."""
