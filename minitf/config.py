"""The sizes and switches of a Transformer, and the models of the paper's Table 3 by name."""

import dataclasses
import reprlib
from dataclasses import field
from typing import Any, Self

import numpy as np

from minitf.errors import UserError

__all__ = ["PRESETS", "Config"]


# What a field of Config accepts, and how a message says it.
SIZE = {
    "accepts": lambda value: type(value) is int and value >= 1,
    "must_be": "an integer of at least 1",
}
OPTIONAL_SIZE = SIZE | {"accepts": lambda value: value is None or SIZE["accepts"](value)}
# Dropout is rounded to 1/65536, and something must remain; no useful value is larger.
FRACTION = {
    "accepts": lambda value: type(value) in (int, float) and 0 <= value <= 0.9999,
    "must_be": "at least 0 and at most 0.9999",
}
SWITCH = {"accepts": lambda value: type(value) is bool, "must_be": "true or false"}


def _choice(*choices):
    return {"accepts": lambda value: value in choices, "must_be": " or ".join(choices)}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that defines a model apart from its weights; by default the paper's base model.

    vocabulary_size: the tokens of the vocabulary that both languages share.
    n_layers: the layers of the encoder, and of the decoder unless n_decoder_layers is given.
    d_model: the features of each position, between all layers.
    d_ff: the features inside the feed-forward network.
    n_heads: the heads of each attention.
    d_k, d_v: the features of a key and of a value in one head; by default d_model / n_heads.
    dropout, attention_dropout, feed_forward_dropout: the rates for sub-layer outputs and
    embeddings, for attention weights, and inside the feed-forward network.
    label_smoothing: the probability that the loss spreads over the tokens that are not the target.
    norm: "post", LayerNorm(x + Sublayer(x)), as in the paper, or "pre", x + Sublayer(LayerNorm(x))
    with one more norm at the end of the encoder and of the decoder.
    eps: the number that layer norm adds to the variance, so that it does not divide by 0.
    positions: "sinusoid", or "learned" for a table of max_length rows.
    max_length: tokens of the longest text, with learned positions; sinusoids have no limit.
    sinusoid_layout: "interleaved" as in the paper, or "halves", all sines before all cosines.
    sinusoid_base: "paper" for exponents 2i/d_model, "t2t" for tensor2tensor's i/(d_model/2 - 1).
    tie: whether both embeddings and the output share one matrix.
    pad_id, unk_id, bos_id, eos_id: the ids of padding, of an unknown token, of the start mark, and
    of the end mark.
    attention_bias: whether the projections to queries, keys, values and outputs have a bias.
    activation: the function inside the feed-forward network, "relu" as in the paper, or "swish".
    output_bias: whether each token of the vocabulary has a bias that is added to its logit.
    n_decoder_layers: the layers of the decoder; by default n_layers.
    suppressed_ids: the ids of tokens that the model never writes, and that the loss leaves out.
    decoder: how the decoder reads what it has written so far, by "self-attention" as in the paper,
    or by "ssru", a recurrent layer (see minitf/beyond/ssru.py).
    Raises UserError for a value that no model can have.
    """

    vocabulary_size: int = field(metadata=SIZE)
    n_layers: int = field(default=6, metadata=SIZE)
    d_model: int = field(default=512, metadata=SIZE)
    d_ff: int = field(default=2048, metadata=SIZE)
    n_heads: int = field(default=8, metadata=SIZE)
    d_k: int | None = field(default=None, metadata=OPTIONAL_SIZE)
    d_v: int | None = field(default=None, metadata=OPTIONAL_SIZE)
    dropout: float = field(default=0.1, metadata=FRACTION)
    attention_dropout: float = field(default=0.0, metadata=FRACTION)
    feed_forward_dropout: float = field(default=0.0, metadata=FRACTION)
    label_smoothing: float = field(default=0.1, metadata=FRACTION)
    norm: str = field(default="post", metadata=_choice("post", "pre"))
    eps: float = field(default=1e-6, metadata=FRACTION)
    positions: str = field(default="sinusoid", metadata=_choice("sinusoid", "learned"))
    sinusoid_layout: str = field(default="interleaved", metadata=_choice("interleaved", "halves"))
    sinusoid_base: str = field(default="paper", metadata=_choice("paper", "t2t"))
    max_length: int = field(default=1024, metadata=SIZE)
    tie: bool = field(default=True, metadata=SWITCH)
    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3
    attention_bias: bool = field(default=False, metadata=SWITCH)
    activation: str = field(default="relu", metadata=_choice("relu", "swish"))
    output_bias: bool = field(default=False, metadata=SWITCH)
    n_decoder_layers: int | None = field(default=None, metadata=OPTIONAL_SIZE)
    suppressed_ids: tuple[int, ...] = ()
    decoder: str = field(default="self-attention", metadata=_choice("self-attention", "ssru"))

    def __post_init__(self):
        for each in dataclasses.fields(self):
            name, value = each.name, getattr(self, each.name)
            if isinstance(value, np.generic):  # such as ids.max() + 1; JSON takes Python's alone
                value = value.item()
                self._set(name, value)
            if each.metadata and not each.metadata["accepts"](value):
                must_be = each.metadata["must_be"]
                raise UserError(f"{name} must be {must_be}, not {reprlib.repr(value)}")
        if None in (self.d_k, self.d_v) and self.d_model % self.n_heads:
            raise UserError(
                f"d_model {self.d_model} is not a multiple of n_heads {self.n_heads}: choose "
                "another size, or also set d_k and d_v"
            )
        self._set("d_k", self.d_k or self.d_model // self.n_heads)
        self._set("d_v", self.d_v or self.d_model // self.n_heads)
        self._set("n_decoder_layers", self.n_decoder_layers or self.n_layers)
        if self.positions == "sinusoid" and self.d_model % 2:
            raise UserError(f"sinusoids need an even d_model, not {self.d_model}")
        special = (self.pad_id, self.unk_id, self.bos_id, self.eos_id)
        self._check_ids("the special ids pad_id, unk_id, bos_id, eos_id", special)
        self._check_ids("suppressed_ids", self.suppressed_ids)
        if self.eos_id in self.suppressed_ids:
            raise UserError(
                f"suppressed_ids must not contain the end mark {self.eos_id}: no text would end"
            )
        self._set("suppressed_ids", tuple(map(int, self.suppressed_ids)))  # JSON: lists of int only

    def _set(self, name, value):
        object.__setattr__(self, name, value)  # the class is frozen: an assignment is refused

    def _check_ids(self, what, ids):
        if (
            not isinstance(ids, tuple | list)
            or not all(type(i) is int or isinstance(i, np.integer) for i in ids)
            or not all(0 <= i < self.vocabulary_size for i in ids)
            or len(set(ids)) < len(ids)
        ):
            raise UserError(
                f"{what} must be different integers from 0 to vocabulary_size - 1, not "
                f"{reprlib.repr(ids)}"
            )

    @classmethod
    def preset(cls, name: str, vocabulary_size: int = 37000, **changes: Any) -> Self:
        """Return the Config of a named model, such as base or a row of Table 3: see PRESETS."""
        if name not in PRESETS:
            raise UserError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
        return cls(vocabulary_size, **{**PRESETS[name], **changes})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        A d_k or d_v that equals d_model / n_heads, even one that was given, is computed again from
        the new d_model and n_heads, unless it is among the changes. Likewise, an n_decoder_layers
        that equals n_layers becomes the new n_layers.
        """
        if self.d_k * self.n_heads == self.d_model:
            changes.setdefault("d_k", None)
        if self.d_v * self.n_heads == self.d_model:
            changes.setdefault("d_v", None)
        if self.n_decoder_layers == self.n_layers:
            changes.setdefault("n_decoder_layers", None)
        return dataclasses.replace(self, **changes)

    def count_parameters(self) -> int:
        """Return the number of parameters of the model, without building it.

        >>> Config.preset("base").count_parameters()
        63045632
        """
        norm = 2 * self.d_model
        keys, values = self.n_heads * self.d_k, self.n_heads * self.d_v  # features of all heads
        attention = self.d_model * (2 * keys + 2 * values)  # query, key, value, output
        if self.attention_bias:
            attention += 2 * keys + values + self.d_model
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model
        encoder_layer = attention + feed_forward + 2 * norm
        own = attention if self.decoder == "self-attention" else 2 * self.d_model**2 + self.d_model
        decoder_layer = own + attention + feed_forward + 3 * norm
        last_norms = 2 * norm if self.norm == "pre" else 0
        tables = (1 if self.tie else 3) * self.vocabulary_size * self.d_model
        positions = 2 * self.max_length * self.d_model if self.positions == "learned" else 0
        layers = self.n_layers * encoder_layer + self.n_decoder_layers * decoder_layer
        output_bias = self.vocabulary_size if self.output_bias else 0
        return layers + last_norms + tables + positions + output_bias

    def to_dict(self) -> dict:
        """Return all fields as a dictionary for JSON, so with a list in place of a tuple."""
        return dataclasses.asdict(self) | {"suppressed_ids": list(self.suppressed_ids)}

    @classmethod
    def from_dict(cls, fields: dict) -> Self:
        """Return the Config whose `to_dict` returned these fields.

        Fields that are missing have their defaults.
        Raises UserError for an unknown field, a missing vocabulary_size, and an impossible value.
        """
        unknown = sorted(fields.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise UserError(
                f"unknown model setting {', '.join(unknown)}: update minitf, the model may be "
                "from a newer version"
            )
        if "vocabulary_size" not in fields:
            raise UserError("vocabulary_size is missing from the settings: copy the file again")
        return cls(**fields)


PRESETS = {
    "tiny": {"n_layers": 2, "d_model": 64, "d_ff": 256, "n_heads": 4},
    "small": {"n_layers": 3, "d_model": 256, "d_ff": 1024, "n_heads": 4},
    "base": {},
    # The paper's Table 3, row by row. (A): the number of heads at equal cost.
    "A-h1": {"n_heads": 1},
    "A-h4": {"n_heads": 4},
    "A-h16": {"n_heads": 16},
    "A-h32": {"n_heads": 32},
    # (B): the size of the keys.
    "B-dk16": {"d_k": 16},
    "B-dk32": {"d_k": 32},
    # (C): the size of the model.
    "C-N2": {"n_layers": 2},
    "C-N4": {"n_layers": 4},
    "C-N8": {"n_layers": 8},
    "C-d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "C-d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "C-ff1024": {"d_ff": 1024},
    "C-ff4096": {"d_ff": 4096},
    # (D): dropout and label smoothing.
    "D-dropout0.0": {"dropout": 0.0},
    "D-dropout0.2": {"dropout": 0.2},
    "D-smoothing0.0": {"label_smoothing": 0.0},
    "D-smoothing0.2": {"label_smoothing": 0.2},
    # (E): learned positions.
    "E-learned": {"positions": "learned"},
    "big": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
}
