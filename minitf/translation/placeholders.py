"""The words that a model copies, which can stand for what must not be translated.

A model of minitf's trainer can learn placeholders (`minitf.text.protected`). With any other, such
as a public model, words are tried; those that it copies are noted in its folder.
"""

from minitf.text.protected import PLACEHOLDERS
from minitf.translation.translator import Translator

# Numbers that mean nothing, and names that nobody has.
_CANDIDATES = (
    tuple(PLACEHOLDERS),
    ("4711", "5823", "6934", "7145", "8256", "9367"),
    ("X1", "X2", "X3", "X4", "X5", "X6"),
    ("Kelvanor", "Mirtasel", "Dorfenza", "Belgarin", "Salmitor", "Wendoria"),
)
_SENTENCES = {
    "en": ("I saw {} yesterday.", "What does {} mean?", "{} is wrong.", "It is {} or {}."),
    "de": ("Ich habe {} gesehen.", "Was bedeutet {}?", "{} ist falsch.", "Es ist {} oder {}."),
    "fr": ("J'ai vu {} hier.", "Que veut dire {} ?", "{} est faux.", "C'est {} ou {}."),
    "es": ("Vi {} ayer.", "¿Qué significa {}?", "{} es falso.", "Es {} o {}."),
    "it": ("Ho visto {} ieri.", "Cosa significa {}?", "{} è sbagliato.", "È {} o {}."),
    "ru": ("Я видел {} вчера.", "Что значит {}?", "{} - это ошибка.", "Это {} или {}."),
}
_TEMPLATES = ("{}.", "{}?", "{}, {}", "({}) {}")
_MIN_COPIED = 0.8  # fraction of the sentences


def copied_placeholders(translator: Translator, language: str = "") -> list[str]:
    """Return the words that a translator copies best in a few sentences; none if it copies none.

    translator: one without placeholders, which reads the words themselves. language: the code of
    its source language, such as "en"; for one without sentences here, the words stand alone.
    """
    sentences, best, best_share = _SENTENCES.get(language, _TEMPLATES), [], _MIN_COPIED
    for words in _CANDIDATES:
        lines = [
            (sentence.format(*words[i:]), words[i : i + sentence.count("{}")])
            for sentence in sentences
            for i in range(0, len(words) - 1, 2)
        ]
        translations = translator.translate([line for line, _ in lines])
        share = sum(
            all(word in texts[0].text for word in asked)
            for texts, (_, asked) in zip(translations, lines, strict=True)
        ) / len(lines)
        if share > best_share:
            best, best_share = list(words), share
    return best
