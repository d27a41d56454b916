"""Lines in, translations out: the Translator, and the command line of examples/translate.py."""
