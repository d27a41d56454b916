"""Section 6.3 of the paper: a Transformer that reads a sentence and writes its tree."""
