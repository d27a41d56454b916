"""The sizes and switches of a Transformer, and the models of the paper's Table 3 by name."""

import dataclasses
import re
import reprlib
import types
import typing

from minitf.errors import UserError

__all__ = ["PRESETS", "Config"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that defines a model apart from its weights.

    The defaults are the paper's base model.

    d_k and d_v default to d_model / n_heads. norm: "post", LayerNorm(x + Sublayer(x)), as in the
    paper, or "pre", x + Sublayer(LayerNorm(x)) with one more norm at the end. positions: "sinusoid"
    or "learned" (up to max_length). sinusoid_layout: "interleaved" as in the paper, or "halves"
    (all sines, then all cosines). sinusoid_base: "paper" for exponents 2i/d_model, "t2t" for
    tensor2tensor's i/(d_model/2 - 1).
    tie: one matrix for both embeddings and the output. The three dropout rates are those of
    sub-layer outputs and embeddings, of attention weights, and inside the feed-forward network.
    """

    vocabulary_size: int
    n_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    feed_forward_dropout: float = 0.0
    label_smoothing: float = 0.1
    norm: str = "post"
    eps: float = 1e-6
    positions: str = "sinusoid"
    sinusoid_layout: str = "interleaved"
    sinusoid_base: str = "paper"
    max_length: int = 1024
    tie: bool = True
    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    def __post_init__(self):
        for name in (
            "vocabulary_size",
            "n_layers",
            "d_model",
            "d_ff",
            "n_heads",
            "max_length",
            "d_k",
            "d_v",
        ):
            if name in ("d_k", "d_v") and getattr(self, name) is None:
                if self.d_model % self.n_heads:
                    raise UserError(
                        f"d_model {self.d_model} is not a multiple of n_heads "
                        f"{self.n_heads}: set {name}"
                    )
                object.__setattr__(self, name, self.d_model // self.n_heads)
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise UserError(
                    f"{name} must be a whole number of 1 or more, not {getattr(self, name)!r}"
                )
        for name in ("dropout", "attention_dropout", "feed_forward_dropout", "label_smoothing"):
            # Dropout is rounded to 1/65536, and something must stay.
            if not 0 <= getattr(self, name) <= 0.9999:
                raise UserError(
                    f"{name} must be at least 0 and at most 0.9999, not {getattr(self, name)!r}"
                )
        if not 0 <= self.eps < 1:
            raise UserError(f"eps must be at least 0 and less than 1, not {self.eps!r}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UserError(
                    f"{name} must be {' or '.join(choices)}, not {getattr(self, name)!r}"
                )
        if self.d_model % 2 and self.positions == "sinusoid":
            raise UserError(f"sinusoids need an even d_model, not {self.d_model}")
        ids = (self.pad_id, self.unk_id, self.bos_id, self.eos_id)
        if len(set(ids)) < 4 or not all(0 <= i < self.vocabulary_size for i in ids):
            raise UserError(f"the special ids {ids} must differ and be less than vocabulary_size")

    @classmethod
    def preset(cls, name: str, vocabulary_size: int = 37000, **changes: typing.Any) -> typing.Self:
        """Give a named model: tiny, small, base, big, or a row of the paper's Table 3
        (see PRESETS).
        """
        if name not in PRESETS:
            raise UserError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
        return cls(vocabulary_size, **{**PRESETS[name], **changes})

    def replace(self, **changes: typing.Any) -> typing.Self:
        """Give a copy with some fields changed; d_k and d_v follow d_model / n_heads where
        they did before.
        """
        for name in ("d_k", "d_v"):
            if getattr(self, name) * self.n_heads == self.d_model:
                changes.setdefault(name, None)
        return dataclasses.replace(self, **changes)

    def count_parameters(self) -> int:
        """Count the numbers that training changes, without building the model.

        >>> Config.preset("base").count_parameters()
        63045632
        """
        norm = 2 * self.d_model
        attention = 2 * self.d_model * self.n_heads * (self.d_k + self.d_v)
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model
        # Layers of the encoder, and as many of the decoder.
        layers = self.n_layers * (3 * attention + 2 * feed_forward + 5 * norm)
        tables = self.vocabulary_size * (1 if self.tie else 3)
        tables += 2 * self.max_length if self.positions == "learned" else 0
        return layers + tables * self.d_model + (2 * norm if self.norm == "pre" else 0)

    def check_subwords(self, count: int) -> None:
        """Raise UserError if a model of this size does not go with so many subwords."""
        if count != self.vocabulary_size:
            raise UserError(
                f"{count:,} subwords, but the model knows {self.vocabulary_size:,}: "
                "two models' files?"
            )

    def check_size(self, arrays: dict) -> None:
        """Raise UserError if a model of this configuration would be far larger than these
        arrays, by name.

        To be called before a model is built from a file, where a wrong number must not cost
        memory. The count need not be that of `count_parameters`, because layers may have been
        changed in the code.
        """
        size = sum(array.size for array in arrays.values())
        if self.count_parameters() > 2 * size or self.n_layers > len(arrays):
            self.check_arrays(arrays)
            raise UserError(
                f"{size:,} numbers in {len(arrays)} arrays are too few for a model of "
                f"{self.n_layers} layers and {self.count_parameters():,} parameters: "
                "use the settings that it was made with, and if its code was changed, "
                "give the class or function that makes it"
            )

    def check_arrays(self, arrays: dict) -> None:
        """Raise UserError if arrays, by name, were made with other settings than these, and
        name the settings.
        """
        found = _settings_of({name: array.shape for name, array in arrays.items()})
        mine = dataclasses.asdict(self)
        mine |= {"n_heads * d_k": self.n_heads * self.d_k, "n_heads * d_v": self.n_heads * self.d_v}
        differing = [
            f"{name} is {there}, not {mine[name]}"
            for name, there in found.items()
            if there != mine[name]
        ]
        if differing:
            what = "; ".join(differing)
            raise UserError(
                f"weights of another configuration ({what}): use the settings and the code that "
                "it was made with"
            )

    def to_dict(self) -> dict:
        """Give all fields as a dictionary, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict) -> typing.Self:
        """Build from a dictionary. Raises UserError for a field that this version does not know."""
        unknown = sorted(set(fields) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise UserError(
                f"unknown model setting {', '.join(unknown)}: was the model made by a newer minitf?"
            )
        if "vocabulary_size" not in fields:
            raise UserError("the model settings lack vocabulary_size: copy the file again")
        check_types(cls, fields)
        return cls(**fields)


def check_types(kind, fields):
    """Raise UserError where a dictionary from a file has a value that a field of this
    dataclass cannot have.
    """
    for name, hint in typing.get_type_hints(kind).items():
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if name in fields and not any(_is(fields[name], option) for option in options):
            raise UserError(
                f"the setting {name} cannot be {reprlib.repr(fields[name])}: copy the file again"
            )


def _is(value, kind):
    if kind == list[str]:
        return type(value) is list and all(type(item) is str for item in value)
    return type(value) in ((int, float) if kind is float else (kind,))


def _settings_of(shapes):
    """Read from the names and shapes of a model's arrays what they say about its settings."""
    layers = [
        int(name.split(".")[2]) for name in shapes if re.match(r"encoder\.layers\.\d+\.", name)
    ]
    found = {
        "n_layers": max(layers, default=-1) + 1,
        "tie": "target_embedding.weight" not in shapes,
    }
    found["norm"] = "pre" if "encoder.norm.gain" in shapes else "post"
    found["positions"] = "learned" if "source_positions.learned.weight" in shapes else "sinusoid"
    layer = "encoder.layers.0."
    for name, axis, place in (
        ("vocabulary_size", 0, "embedding.weight"),
        ("d_model", 1, "embedding.weight"),
        ("d_ff", 1, layer + "feed_forward.inner.weight"),
        ("n_heads * d_k", 1, layer + "self_attention.query.weight"),
        ("n_heads * d_v", 1, layer + "self_attention.value.weight"),
        ("max_length", 0, "source_positions.learned.weight"),
    ):
        if len(shapes.get(place, ())) == 2:
            found[name] = shapes[place][axis]
    return found


_CHOICES = {
    "norm": ("post", "pre"),
    "positions": ("sinusoid", "learned"),
    "sinusoid_layout": ("interleaved", "halves"),
    "sinusoid_base": ("paper", "t2t"),
}

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
