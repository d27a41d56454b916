"""Lines in, translations out: the Translator."""

from minitf.translation.translator import Search, Translation, Translator

__all__ = ["Search", "Translation", "Translator"]
