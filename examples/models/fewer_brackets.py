r"""Make more pairs for a parser: the sentences of craft, with trees that lack some brackets.

Every word of a tree is written XX. To know which word of the sentence comes next, a decoder can
count the XX that it has written, or guess from the brackets before. Guessing is learned sooner, and
works as long as those brackets are right, as they are in training, where the decoder is given the
right tree so far. But a parser has only its own: after one mistake it is a word ahead or behind for
the rest of the sentence. In trees with few brackets there is little to guess from, so the decoder
learns to count:

    python examples/models/fewer_brackets.py --output fewer.en fewer.trees
    python -m minitf.training --recipe parsing --corpus craft --add fewer.en fewer.trees \
        --cooldown 0 --steps 30000 --out runs/counting

This model leaves brackets out. Training on whole trees alone ends that. In a short trial it went on
counting; these two commands have not been run to their end yet:

    python -m minitf.training --start-from runs/counting --corpus craft --set dropout=0.15 \
        --sample-subwords 0.1 --batch-tokens 1024 --learning-rate 0.2 --warmup-steps 200 \
        --cooldown 0.6 --steps 20000 --out runs/parser

Source of the idea: Bowman et al. 2016, section 3.1, who hide words from a decoder that relies on
them too much.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.atomic import save_text
from minitf.text.trees import WORD

__all__ = ["fewer_brackets", "thinned"]

KEPT_LABELS = 0.5  # the probability to keep a label; constituents with others are left out
MOST_KEPT = 0.7  # the largest probability to keep each constituent of a tree


def thinned(tree, keep):
    """Return a tree in linear form without the inner constituents that `keep` refuses.

    keep: called with the label of each constituent but the outermost, in the order of the tree.

    >>> thinned("(S (NP XX XX )NP (VP XX )VP )S".split(), lambda label: label == "VP")
    ['(S', 'XX', 'XX', '(VP', 'XX', ')VP', ')S']
    """
    found, stack = [], []
    for token in tree:
        if token == WORD:
            found.append(token)
            continue
        if token[0] == "(":
            stack.append(not stack or keep(token[1:]))
        if stack[-1]:
            found.append(token)
        if token[0] == ")":
            stack.pop()
    return found


def fewer_brackets(sources, targets, rng):
    """Return two pairs for each pair of a sentence and its tree in linear form, as two lists.

    The first tree keeps half of the labels; the second keeps each constituent with a probability
    that is drawn for the whole tree. A tree that stays as it is, is left out.
    """
    trees = [target.split() for target in targets]
    labels = sorted({token[1:] for tree in trees for token in tree if token[0] == "("})
    pairs = []
    for source, tree in zip(sources, trees, strict=True):
        chosen = {label for label in labels if rng.random() < KEPT_LABELS}
        share = rng.uniform(0, MOST_KEPT)
        for made in (
            thinned(tree, chosen.__contains__),
            thinned(tree, lambda label, share=share: rng.random() < share),
        ):
            if made != tree:
                pairs.append((source, " ".join(made)))
    return [source for source, _ in pairs], [target for _, target in pairs]


def main(arguments=None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", nargs=2, metavar=("SOURCE", "TARGET"), required=True,
        help="files to write the new pairs to",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="another gives other pairs (default 0)"
    )
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    if len({Path(path).resolve() for path in options.output}) < len(options.output):
        parser.error("--output must name two different files")
    try:
        train = corpora.load("craft").train
        sides = fewer_brackets(train.source, train.target, np.random.default_rng(options.seed))
        for path, lines in zip(options.output, sides, strict=True):
            save_text(path, "".join(line + "\n" for line in lines))
    except UserError as error:
        print(f"fewer_brackets.py: {error}", file=sys.stderr)
        return 2
    print(f"{len(sides[0]):,} pairs written to {' and '.join(options.output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
