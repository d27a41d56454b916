"""Parity with transformers as it is installed: the extra `ref`, and slow."""

import itertools
import json
import shutil

import numpy as np
import pytest
import tiny_translator
from public_files import PUBLIC, logits_of
from saved_files import quiet

from minitf import Config, Transformer
from minitf.decode import beam_search, greedy
from minitf.files.models import save_model
from minitf.public.hugging_face import export_model
from minitf.public.importing import import_model
from minitf.translation.loading import load_model

try:
    import torch
    import transformers
except ModuleNotFoundError:
    torch = transformers = None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(transformers is None, reason="pip install -e '.[ref]' brings transformers"),
]

OPUS = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "heads": 8, "ffn": 2048}
TINY = {"d_model": 256, "encoder_layers": 6, "decoder_layers": 2, "heads": 8, "ffn": 1536}
CASES = [
    pytest.param({**OPUS, "activation": "swish", "size": 58101}, id="opus-mt"),
    pytest.param({**TINY, "activation": "relu", "size": 32001}, id="tiny student"),
]


def made(folder, case):
    """Write a random model of these sizes; its vocabulary is the stored one and numbers."""
    torch.manual_seed(0)
    pad, sides = case["size"] - 1, {}
    for side in ("encoder", "decoder"):
        sides |= {
            f"{side}_layers": case[f"{side}_layers"],
            f"{side}_attention_heads": case["heads"],
            f"{side}_ffn_dim": case["ffn"],
        }
    config = transformers.MarianConfig(
        vocab_size=case["size"],
        d_model=case["d_model"],
        activation_function=case["activation"],
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=None,
        scale_embedding=True,
        max_position_embeddings=512,
        **sides,
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.1)
            elif name.endswith("norm.weight"):
                parameter.normal_(1, 0.1)
        # Each token leads to others: a random model would write one for ever.
        last = model.model.decoder.layers[-1].final_layer_norm.weight
        last *= torch.randint(0, 2, last.shape) * 2 - 1
        model.model.shared.weight.normal_(0, 0.05)
        model.model.shared.weight[pad] = 0
        model.final_logits_bias.normal_(0, 0.1)
    model.save_pretrained(folder)
    ids = json.loads((PUBLIC / "vocab.json").read_text(encoding="utf-8"))
    names = [name for name in sorted(ids, key=ids.get) if name != "<pad>"]
    names += [f"number{i}" for i in range(pad - len(names))]
    vocabulary = {name: i for i, name in enumerate([*names, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    for name in ("source.spm", "target.spm"):
        shutil.copy(PUBLIC / name, folder / name)
    return model


class Pair:
    """A random model of transformers, and the same imported; and the ids of one in the other."""

    def __init__(self, folder, case):
        self.folder, self.case, self.pad = folder / "hf", case, case["size"] - 1
        self.folder.mkdir()
        self.theirs = made(self.folder, case)
        import_model(self.folder, folder / "out", "float32", like="transformers", say=quiet)
        self.ours, self.subwords, _ = load_model(folder / "out")
        self.ours.eval()
        self.rows = np.array([self.pad, 1, self.pad, 0, *range(2, self.pad)])
        rng = np.random.default_rng(0)
        self.source = rng.integers(4, len(self.rows), (3, 12))
        self.source[:, -1] = 3
        self.target = rng.integers(4, len(self.rows), (3, 9))
        self.target[:, 0] = 2

    def generated(self, beams, steps):
        """Return what transformers writes, in minitf's ids, without the start and the end."""
        with torch.no_grad():
            found = self.theirs.generate(
                input_ids=torch.tensor(self.rows[self.source]),
                attention_mask=torch.ones(self.source.shape, dtype=torch.long),
                num_beams=beams,
                do_sample=False,
                max_new_tokens=steps,
                length_penalty=0.0,
                early_stopping="never" if beams > 1 else False,
                bad_words_ids=[[self.pad], [1]],
            ).numpy()
        ours = {row: i for i, row in enumerate(self.rows) if i != 2}
        return [[ours[i] for i in row[1:] if ours[i] > 3] for row in found.tolist()]


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    return Pair(tmp_path_factory.mktemp("live"), request.param)


def test_the_logits_are_those_of_transformers(pair):
    with torch.no_grad():
        expected = pair.theirs(
            input_ids=torch.tensor(pair.rows[pair.source]),
            decoder_input_ids=torch.tensor(pair.rows[pair.target]),
        ).logits.numpy()[..., pair.rows]
    found = logits_of(pair.ours, pair.source, pair.target)
    error = np.abs(found - expected)[..., [1, *range(3, len(pair.rows))]][..., 1:].max()
    print(f"{error:.1e} of {np.abs(expected).max():.2f}")
    assert error < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("beams", [1, 4])
def test_decoding_writes_what_transformers_writes(pair, beams):
    steps = 20
    extra = steps - pair.source.shape[1] + 1  # the source without its end mark
    if beams == 1:
        found = [best.ids for best in greedy(pair.ours, pair.source, extra)]
    else:
        found = [best[0].ids for best in beam_search(pair.ours, pair.source, 4, 0.0, extra)]
    expected = pair.generated(beams, steps)
    # A model that repeats itself proves little.
    assert len(set(itertools.chain.from_iterable(expected))) > 8
    assert [list(ids) for ids in found] == expected


def test_the_text_becomes_the_same_ids(tmp_path):
    tokenizer = transformers.MarianTokenizer.from_pretrained(PUBLIC)
    import_model(PUBLIC, tmp_path / "out", "float32", say=quiet)
    subwords = load_model(tmp_path / "out")[1]
    ids = json.loads((PUBLIC / "vocab.json").read_text(encoding="utf-8"))
    names = subwords.names
    lines = ["the dog sleeps.", ">>deu<< the dog", "", "Is it 5?", ">>fra<< I see no friend."]
    for line, found in zip(lines, subwords.encode(lines), strict=True):
        assert [ids[names[i]] for i in found] + [0] == tokenizer(line).input_ids


# The way back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-5, 1e-2])  # that of transformers, and one far from it
def test_transformers_runs_an_exported_model(eps, tmp_path):
    subwords = tiny_translator.make_subwords()
    config = Config(len(subwords), n_layers=2, d_model=16, d_ff=24, n_heads=2, eps=eps)
    model = Transformer(config, seed=4)
    rng = np.random.default_rng(3)
    for parameter in model.parameters():
        parameter.data = rng.normal(0, 0.4, parameter.shape).astype("f4")
    save_model(tmp_path / "mine", model.state(), config.to_dict(), subwords, "float32")
    export_model(tmp_path / "mine", tmp_path / "hf", say=quiet)
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "hf").eval()
    source, target = rng.integers(4, len(subwords), (2, 9)), rng.integers(4, len(subwords), (2, 7))
    source[:, -1], target[:, 0] = 3, 2

    def difference():
        with torch.no_grad():
            logits = theirs(
                input_ids=torch.tensor(source), decoder_input_ids=torch.tensor(target)
            ).logits.numpy()
        expected = logits_of(model, source, target)
        return np.abs(logits - expected).max() / np.abs(expected).max()

    as_loaded = difference()
    for module in theirs.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = eps
    print(f"as loaded {as_loaded:.1e}, with the same eps {difference():.1e}")
    assert difference() < 1e-5
    assert (as_loaded < 1e-5) == (eps == 1e-5)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "hf")
    for line in tiny_translator.TEXT:
        assert tokenizer(line).input_ids == [*subwords.encode([line])[0], 3]
