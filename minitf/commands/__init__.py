"""The command translate.py: options, text in, text out, and what is said about it."""
