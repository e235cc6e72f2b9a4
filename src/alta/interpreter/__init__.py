"""What a program does: the meaning, as plainly as it can be written."""
