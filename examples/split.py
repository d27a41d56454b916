"""Split a text and its translation into three parts: to train on, to measure progress, to score.

    python examples/split.py all.en all.de

Line i of the second file translates line i of the first. This writes the pairs, shuffled, to my.en
and my.de (to train on), valid.en and valid.de (to measure progress) and test.en and test.de (for
the final score): 500 pairs each for the last two, or a tenth of a text of fewer than 5,000 pairs.

A sentence that is trained on and tested on would make the score too good, and translation memories
repeat sentences. So a pair that occurs several times is kept once, and a pair that shares a side
with another part is left out, as are pairs with an empty side.
"""

import os
import random
import sys
from pathlib import Path

try:
    from minitf.atomic import save_text, writing
    from minitf.cli import OptionParser, amount, exit_code
    from minitf.data.corpora import decoding_warning, read_pairs
    from minitf.errors import UserError
except ModuleNotFoundError as error:
    sys.exit(f"split.py: {error.name} is not installed: activate the environment (README.md)")

__all__ = ["split"]

SIZE, SHARE = 500, 10  # pairs of valid and of test: 500, but at most a tenth of the text


def split(pairs, seed=0):
    """Return the three parts of the pairs, and how many pairs were left out: (parts, left out).

    pairs: (source line, target line) for each. parts: {"my", "valid", "test": [pair]}. left out:
    {reason: number}. Lines that differ by spaces only are taken for the same.

    >>> parts, left_out = split([(str(i % 90), str(i % 90)) for i in range(100)] + [("90", " ")])
    >>> {name: len(part) for name, part in parts.items()}, left_out
    ({'valid': 9, 'test': 9, 'my': 72}, {'with an empty side': 1, 'repeated': 10})
    """
    as_read = [tuple(" ".join(line.split()) for line in pair) for pair in pairs]
    filled = {words: pair for words, pair in zip(as_read, pairs, strict=True) if all(words)}
    left_out = {"with an empty side": sum(not all(words) for words in as_read)}
    left_out["repeated"] = len(pairs) - left_out["with an empty side"] - len(filled)
    rest, size = list(filled), min(SIZE, len(filled) // SHARE)
    random.Random(seed).shuffle(rest)
    parts = {}
    for name, count in (("valid", size), ("test", size), ("my", len(rest))):
        parts[name] = [filled[words] for words in rest[:count]]
        sources, targets = zip(*rest[:count], strict=True) if rest[:count] else ((), ())
        sources, targets = set(sources), set(targets)
        rest = [pair for pair in rest[count:] if not (pair[0] in sources or pair[1] in targets)]
    left_out["that share a side with valid or test"] = len(filled) - sum(map(len, parts.values()))
    return parts, {reason: count for reason, count in left_out.items() if count}


def _outputs(names, folder):
    """Return {part: [path of each side]}. Raises UserError if a file would be replaced."""
    endings = [Path(name).suffix for name in names]
    if len(set(endings)) < 2 or "" in endings:
        raise UserError(
            f"{' and '.join(names)}: the files that are written end as these do, so end them with "
            "two languages, such as all.en and all.de"
        )
    paths = {part: [folder / f"{part}{end}" for end in endings] for part in ("my", "valid", "test")}
    for path in (path for sides in paths.values() for path in sides):
        if os.path.lexists(path):
            raise UserError(f"{path} exists already: move it, or choose another folder with --out")
    return paths


def _run(options):
    folder, names = Path(options.out), [options.source, options.target]
    paths = _outputs(names, folder)
    sides = read_pairs(*names)
    for name, lines in zip(names, sides, strict=True):
        if warning := decoding_warning(name, lines):
            print(f"split.py: {warning}", file=sys.stderr)
    parts, left_out = split(list(zip(*sides, strict=True)), options.seed)
    if not all(parts.values()):
        raise UserError(f"{names[0]} has too few different pairs to split: give more text")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for part, outputs in paths.items():
        for path, lines in zip(outputs, zip(*parts[part], strict=True), strict=True):
            save_text(path, "".join(f"{line}\n" for line in lines))
        print(f"{' and '.join(map(str, outputs))}: {amount(len(parts[part]), 'pair')}")
    for reason, count in left_out.items():
        print(f"left out, {reason}: {amount(count, 'pair')}")


def main(arguments=None) -> int:
    """Run the command line; return the exit code."""
    return exit_code("split.py", lambda: _run(_options(arguments)))


def _options(arguments):
    parser = OptionParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="the text, one sentence per line, such as all.en")
    parser.add_argument("target", help="its translation, line by line, such as all.de")
    parser.add_argument("--out", default=".", help="the folder for the six files (default: this)")
    parser.add_argument("--seed", type=int, default=0, help="another seed shuffles differently")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
