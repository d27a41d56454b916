"""Lines in, translations out: the Translator."""

from minitf.translation.translator import Translation, Translator

__all__ = ["Translation", "Translator"]
