"""How good is it? BLEU on raw text, counted by sacreBLEU so that others get the same number."""

import math
from dataclasses import dataclass

import numpy as np

from minitf.backend import UserError
from minitf.tensor import no_grad
from minitf.text import make_batch, plan_batches

__all__ = ["Bleu", "bleu", "perplexity"]


@dataclass(frozen=True)
class Bleu:
    """A BLEU score from 0 to 100, what it was made of, and the signature that has to be quoted with it.

    precisions: of 1- to 4-grams, in percent.  text: all of it as one line.
    """

    score: float
    signature: str
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int
    text: str


def bleu(hypotheses, references, lowercase: bool = False, tokenize: str = "13a") -> Bleu:
    """Compare translations with one reference each, over the whole corpus.

        BLEU = 100 * min(1, exp(1 - r/h)) * (p_1 p_2 p_3 p_4)^(1/4)

    h and r count the tokens of the hypotheses and of the references; p_n is the share of the n-grams of the
    hypotheses that the reference of the same sentence has too. Both sides are plain text: sacreBLEU cuts them
    into tokens by the rules of WMT ("13a") unless `tokenize` names another of its schemes; "none" is for text
    with blanks between its tokens already. A p_n without any match is smoothed ("exp"), so as not to be 0.

    Raises UserError for no sentences, unequal counts and an unknown scheme.
    Source: section 6.1; Papineni et al. 2002; Post 2018, "A Call for Clarity in Reporting BLEU Scores".

    >>> result = bleu(["The cat sat on the mat."], ["The cat sat on a mat."])
    >>> round(result.score, 2), [round(precision, 1) for precision in result.precisions]
    (48.89, [85.7, 66.7, 40.0, 25.0])
    """
    hypotheses, references = _lines(hypotheses), _lines(references)
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses):,} translations but {len(references):,} references: give one for each")
    if not references:
        raise UserError("nothing to score: give at least one translation and its reference")
    metric = _metric(lowercase, tokenize)
    result = metric.corpus_score(hypotheses, [references])
    signature = metric.get_signature().format()
    return Bleu(
        score=result.score,
        signature=signature,
        precisions=tuple(result.precisions),
        brevity_penalty=result.bp,
        hypothesis_length=result.sys_len,
        reference_length=result.ref_len,
        text=result.format(signature=signature),
    )


def _lines(texts):
    if isinstance(texts, str):
        raise TypeError("bleu() takes lists of sentences, not one string")
    return list(texts)


def _metric(lowercase, tokenize):
    from sacrebleu.metrics import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(f"unknown tokenization {tokenize!r}: choose one of {', '.join(BLEU.TOKENIZERS)}")
    # force: no warning about text that looks tokenized; whoever says "none" knows.
    return BLEU(lowercase=lowercase, tokenize=tokenize, force=True)


def perplexity(model, subwords, pairs, batch_tokens=4096) -> float:
    """Say how many equally likely words the model hesitates between, on average, at each target piece.

        perplexity = exp( - 1/n sum_t ln p(y_t | y_1 ... y_t-1, x) )

    The plain likelihood, without label smoothing: of one vocabulary, lower is better; over different
    vocabularies it cannot be compared (the paper's Table 3 is per piece as well).
    """
    sources, targets = subwords.encode(pairs.source), subwords.encode(pairs.target)
    lengths = [np.array([len(ids) + 1 for ids in side]) for side in (sources, targets)]
    total, n_tokens = 0.0, 0
    model.eval()
    with no_grad():
        for rows in plan_batches(*lengths, batch_tokens, np.random.default_rng(0)):
            batch = make_batch([sources[i] for i in rows], [targets[i] for i in rows], len(subwords))
            _, nll = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens=1)
            total += float(nll)
            n_tokens += batch.n_tokens
    return math.exp(min(total / n_tokens, 700))
