"""How one line was translated: the attention of all heads, the likely next tokens, and the beam.

Letters: L layers, H heads, T target length, S source length, V vocabulary.
"""

from __future__ import annotations

import copy
import dataclasses
from itertools import chain

import numpy as np

from minitf.config import Config
from minitf.decode import BeamStep
from minitf.functions import softmax
from minitf.tensor import Ids, no_grad
from minitf.text import Subwords, Words
from minitf.transformer import Transformer

_LIKELY = 5  # next tokens that are listed at each position
_SHOWN = 8  # numbers of a vector that are kept for its picture


@dataclasses.dataclass(frozen=True)
class Explained:
    """How a line was translated.

    line: the text that the model read. translation: the best one found, with its ln P and score.
    source_ids, target_ids: with the end mark. A translation that was cut off at its greatest length
    has one as well, which the model did not write.
    source, target: the tokens of these ids, for pictures.
    weights: who attends to whom, for "encoder" (L, H, S, S), "decoder" (L, H, T, T) and "source"
    (L, H, T, S). The decoder's row t decides on target token t and has read those before it. An
    SSRU has (L, 1, T, T): how much of its state each token is.
    vectors: some numbers of each token's vectors: see recorded_pass.
    next_tokens: for each target token the five most probable tokens and their P, the best first.
    beam: the BeamSteps of the search; none for greedy decoding. names: the tokens of their ids.
    parts: into how many parts the line was split; only the first is explained.
    width, alpha, max_extra: as in beam_search; greedy decoding has the width 1.
    limit: the greatest length of the translation, with its end mark.
    decoder: as in Config.
    """

    line: str
    translation: str
    log_probability: float
    score: float
    source_ids: list[int]
    target_ids: list[int]
    source: list[str]
    target: list[str]
    weights: dict[str, np.ndarray]
    vectors: dict[str, np.ndarray]
    next_tokens: list[list[tuple[str, float]]]
    beam: list[BeamStep]
    names: dict[int, str]
    parts: int
    width: int
    alpha: float
    max_extra: int
    limit: int
    decoder: str

    def tokens(self, kind: str) -> tuple[list[str], list[str]]:
        """Return the tokens of the rows and columns of weights[kind].

        A decoder position decides on the next token, so its row has the name of that token.
        """
        seen = ["<s>", *self.target[:-1]]
        return {
            "source": (self.target, self.source),
            "encoder": (self.source, self.source),
            "decoder": (self.target, seen),
        }[kind]


class _Recorded:
    """A layer that remembers its last input and output."""

    def __init__(self, layer):
        self.layer, self.input, self.output = layer, None, None

    def __call__(self, x, *more):
        self.input, self.output = x, self.layer(x, *more)
        return self.output


def recorded_pass(
    model: Transformer, source: Ids, target: Ids
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """Return the weights of all attentions in one pass, the logits (T, V), and parts of vectors.

    source: ids (1, S). target: ids (1, T), which begin with the start mark.
    For a picture, N evenly spaced numbers of each vector are returned. "embeddings": (S, N), the
    source tokens'. "source": (1 + L, S, N), the vectors that enter the first layer of the encoder
    and that leave each; "target": the same for the decoder, (1 + L, T, N).
    """
    # A copy, whose layers are replaced by ones that record; it shares the weights.
    model = copy.deepcopy(model, {id(weights): weights for weights in model.parameters()})
    stacks = {"source": model.encoder, "target": model.decoder}
    attentions = {
        "encoder": [layer.self_attention for layer in model.encoder.layers],
        "decoder": [layer.self_attention for layer in model.decoder.layers],
        "source": [layer.source_attention for layer in model.decoder.layers],
    }
    for attention in chain.from_iterable(attentions.values()):
        attention.keep_weights = True
    with model.evaluating(), no_grad():
        for stack in stacks.values():
            stack.layers = [_Recorded(layer) for layer in stack.layers]
        model.source_positions = embedded = _Recorded(model.source_positions)
        logits = model(source, target).numpy()[0]
    weights = {
        kind: np.stack([attention.weights[0] for attention in each])
        for kind, each in attentions.items()
    }
    seen = {
        side: [stack.layers[0].input, *(layer.output for layer in stack.layers)]
        for side, stack in stacks.items()
    }
    some = np.arange(_SHOWN) * model.config.d_model // _SHOWN
    vectors = {side: np.stack([x.numpy()[0][:, some] for x in each]) for side, each in seen.items()}
    return weights, logits, {"embeddings": embedded.input.numpy()[0][:, some]} | vectors


def likely_next(
    logits: np.ndarray, config: Config, subwords: Subwords | Words
) -> list[list[tuple[str, float]]]:
    """Return the most probable tokens at each position, with P, for logits (T, V)."""
    p = softmax(logits.astype(np.float64)).numpy()
    p[:, [config.pad_id, config.bos_id]] = 0  # never written
    best = np.argsort(-p, axis=-1, kind="stable")[:, :_LIKELY]
    return [
        [(subwords.pieces([i])[0], float(row[i])) for i in ids.tolist()]
        for ids, row in zip(best, p, strict=True)
    ]
