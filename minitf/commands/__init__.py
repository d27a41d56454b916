"""The commands translate.py and parse.py: options, text in, text out, and what is said about it."""
