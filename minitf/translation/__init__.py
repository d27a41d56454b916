"""Lines in, translations out: the Translator, and the command line of examples/translate.py."""

from minitf.translation.translator import Translation, Translator

__all__ = ["Translation", "Translator"]
