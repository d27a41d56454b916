"""Models whose texts end at different steps, and hypotheses that are alike."""

import pytest
from plain import EOS


def likely_end(model, by=1.0):
    """Lean the last norm's bias to the end mark, so that texts end at different steps."""
    norm = model.decoder.norm or model.decoder.layers[-1].feed_forward_residual.norm
    norm.bias.data += by * model.output_embedding.weight.data[EOS]
    return model


def assert_same(found, expected, rel=1e-9):
    for ours, theirs in zip(found, expected, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in theirs]
        assert [h.log_probability for h in ours] == pytest.approx(
            [h.log_probability for h in theirs], rel=rel
        )
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=rel)
