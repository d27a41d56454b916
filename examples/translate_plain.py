"""Translate a sentence by the equations alone: the shortest way from words to words."""

from pathlib import Path

from minitf.decode import Decoding, beam_search
from minitf.text import EOS
from minitf.text.batches import pad_rows
from minitf.translation.loading import load_model

model, subwords, _ = load_model(Path(__file__).parent / "models" / "en-de")
ids = subwords.encode(["The children are playing in the garden."])
source = pad_rows(ids, model.config.vocabulary_size, last=EOS)  # (1, S)
for found in beam_search(Decoding(model), source, beam=4, n_best=2)[0]:
    print(f"ln P {found.log_probability:.2f}", *subwords.decode([found.ids]))
