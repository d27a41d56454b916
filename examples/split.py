"""Split a text and its translation into three parts: to train on, to measure progress, to score.

    python examples/split.py all.en all.de

Line i of the second file translates line i of the first. This writes the pairs, shuffled, to my.en
and my.de (to train on), valid.en and valid.de (to measure progress) and test.en and test.de (for
the final score): 500 pairs each for the last two, or a tenth of a text of less than 5,000 pairs.

A sentence that is trained on and tested on would make the score too good, and translation memories
repeat sentences. So a pair that occurs several times is kept once, and a pair that shares a side
with one of valid or test is not trained on. Pairs with an empty side are left out.
"""

import argparse
import random
import sys
from pathlib import Path

from minitf.data.corpora import read_pairs, undecoded
from minitf.errors import UserError
from minitf.files.atomic import install, staged, writing
from minitf.terminal import counted

__all__ = ["split"]

SIZE, SHARE = 500, 10  # pairs of valid and of test: 500, but at most a tenth of the text


def split(pairs, seed=0):
    """Return the three parts of the pairs, and how many pairs were left out: (parts, left out).

    pairs: (source line, target line) for each. parts: {"my", "valid", "test": [pair]}. left out:
    {reason: number}, for those that were left out.

    >>> parts, left_out = split([(str(i % 90), str(i % 90)) for i in range(100)] + [("90", " ")])
    >>> {name: len(part) for name, part in parts.items()}, left_out
    ({'my': 72, 'valid': 9, 'test': 9}, {'with an empty side': 1, 'repeated': 10})
    """
    filled = [pair for pair in pairs if all(map(str.strip, pair))]
    shuffled = list(dict.fromkeys(filled))
    left_out = {
        "with an empty side": len(pairs) - len(filled),
        "repeated": len(filled) - len(shuffled),
    }
    random.Random(seed).shuffle(shuffled)
    size = min(SIZE, len(shuffled) // SHARE)
    valid, test, rest = shuffled[:size], shuffled[size : 2 * size], shuffled[2 * size :]
    sources, targets = ({pair[side] for pair in valid + test} for side in (0, 1))
    mine = [pair for pair in rest if pair[0] not in sources and pair[1] not in targets]
    left_out["that share a side with one of valid or test"] = len(rest) - len(mine)
    parts = {"my": mine, "valid": valid, "test": test}
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
        if path.exists():
            raise UserError(f"{path} exists already: move it, or choose another folder with --out")
    return paths


def _run(options):
    folder, names = Path(options.out), [options.source, options.target]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    paths = _outputs(names, folder)
    sides = read_pairs(*names)
    for name, lines in zip(names, sides, strict=True):
        if warning := undecoded(name, lines):
            _say(warning)
    parts, left_out = split(list(zip(*sides, strict=True)), options.seed)
    if not (parts["valid"] and parts["my"]):
        raise UserError(f"{names[0]} has too few different pairs to split: give more text")
    writers = {}
    for part, (source, target) in paths.items():
        for path, lines in zip((source, target), zip(*parts[part], strict=True), strict=True):
            text = "".join(f"{line}\n" for line in lines).encode()
            writers[path] = lambda aside, text=text: aside.write_bytes(text)
    with staged(writers) as files:
        for path in files:
            install(files, path)
    for part, outputs in paths.items():
        print(f"{' and '.join(map(str, outputs))}: {counted(len(parts[part]), 'pair')}")
    for reason, count in left_out.items():
        print(f"left out: {counted(count, 'pair')} {reason}")


def _say(message):
    print(f"split.py: {message}", file=sys.stderr)


def main(arguments=None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="the text, one sentence per line, such as all.en")
    parser.add_argument("target", help="its translation, line by line, such as all.de")
    parser.add_argument("--out", default=".", help="the folder for the six files (default: this)")
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed shuffles otherwise (default 0)"
    )
    try:
        _run(parser.parse_args(arguments))
    except UserError as error:
        _say(error)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
