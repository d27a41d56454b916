"""Text to ids and back, and batches of them."""

from minitf.text.subwords import (
    BOS,
    EOS,
    PAD,
    UNK,
    Batch,
    Subwords,
    Words,
    id_type,
    join_cuts,
    load_subwords,
    make_batch,
    pad_rows,
    plan_batches,
    printable,
    valid,
)

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Subwords",
    "Words",
    "id_type",
    "join_cuts",
    "load_subwords",
    "make_batch",
    "pad_rows",
    "plan_batches",
    "printable",
    "valid",
]
