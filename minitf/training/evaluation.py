"""How good a translation is: BLEU by sacreBLEU, BLEU as in the paper, and perplexity.

sacreBLEU scores raw text and defines the tokens itself, so that others get the same number.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import math
import re
from pathlib import Path

import numpy as np

from minitf.cli import Progress, amount
from minitf.data.corpora import decoding_warning, read_lines
from minitf.errors import UserError
from minitf.tensor import no_grad
from minitf.text import make_batch, plan_batches
from minitf.training.signals import Interrupted
from minitf.translation import Search

_COMPOUND = re.compile(r"(\S)-(\S)")
_NOT_PLAIN = re.compile(r'\{"source": |\d+ \|\|\| ')  # lines of --format json and of --nbest


@dataclasses.dataclass(frozen=True)
class Bleu:
    """A BLEU score from 0 to 100, its factors, and the signature to quote with it.

    precisions: of 1- to 4-grams, in percent. text: all of it in one line.
    """

    score: float
    signature: str
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int
    text: str


def bleu(hypotheses, references, lowercase: bool = False, tokenize: str = "13a") -> Bleu:
    """Return the BLEU score of translations, compared with one reference each.

        BLEU = 100 * min(1, exp(1 - r/h)) * (p_1 p_2 p_3 p_4)^(1/4)

    h and r count the tokens of all hypotheses and of all references; p_n is the fraction of the
    hypotheses' n-grams that also occur in the reference of the same sentence, each counted at most
    as often as there. Both sides are plain text: sacreBLEU splits them into tokens by the rules of
    WMT ("13a") unless `tokenize` names another of its schemes; "none" is for text whose tokens are
    already separated by spaces. A p_n without any match is smoothed ("exp"): BLEU is 0 only if no
    token matches, or if no translation has four tokens.

    Raises UserError if there are no sentences, for unequal counts, and for an unknown scheme.
    Source: section 6.1; Papineni et al. 2002; Post 2018, "A Call for Clarity in
    Reporting BLEU Scores".

    >>> result = bleu(["The cat sat on the mat."], ["The cat sat on a mat."])
    >>> round(result.score, 2), [round(precision, 1) for precision in result.precisions]
    (48.89, [85.7, 66.7, 40.0, 25.0])
    """
    from sacrebleu.metrics import BLEU

    hypotheses, references = _as_lists(hypotheses, references)
    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(
            f"unknown tokenisation {tokenize!r}: choose one of {', '.join(BLEU.TOKENIZERS)}"
        )
    # force: no warning about text that looks tokenised, as it must with "none".
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    result = metric.corpus_score(hypotheses, [references])
    return _bleu(result, metric.get_signature().format())


def tokenizer_of(language: str) -> str:
    """Return which of sacreBLEU's schemes splits a language into tokens, by its code.

    Between words of Chinese, Japanese, Thai, Lao, Burmese and Khmer there are no spaces: "13a"
    would take a whole sentence for one token. "ja-mecab" needs the packages of sacrebleu[ja].

    >>> [tokenizer_of(language) for language in ("de", "zh-CN", "th")]
    ['13a', 'zh', 'char']
    """
    code = re.split("[-_]", language.lower())[0]  # zh-CN: zh
    if code == "ja" and all(map(importlib.util.find_spec, ("MeCab", "ipadic"))):
        return "ja-mecab"
    return {"zh": "zh", **dict.fromkeys(("ja", "th", "lo", "my", "km"), "char")}.get(code, "13a")


def paper_bleu(hypotheses, references, language: str = "de") -> Bleu:
    """Return the BLEU score as the paper counted it: Moses tokens, hyphens split, no smoothing.

    It takes plain text, as `bleu` does. Compare its value with the paper's 27.3, and never with a
    score of sacreBLEU: with more and shorter tokens the same translations score higher.
    language: of both texts, "de" or "fr", into which the paper translated. Only German compounds
    are split.

    Raises UserError as `bleu` does, for another language, and if the package sacremoses is missing.
    Source: section 6.1; get_ende_bleu.sh of tensor2tensor, without its escapes, which change no
    count.
    """
    from sacrebleu.metrics import BLEU

    hypotheses, references = _as_lists(hypotheses, references)
    tokens = _moses(language)
    split = split_compounds if language == "de" else str
    found, gold = ([split(tokens(line)) for line in side] for side in (hypotheses, references))
    result = BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(found, [gold])
    compounds = "split" if language == "de" else "whole"
    versions = "|".join(
        f"{name}:{importlib.metadata.version(name)}" for name in ("sacremoses", "sacrebleu")
    )
    how = f"nrefs:1|case:mixed|tok:moses-{language}|compounds:{compounds}|smooth:none|{versions}"
    return _bleu(result, how, "paper-style BLEU")


def split_compounds(line: str) -> str:
    """Make a hyphen inside a word a separate token, as the authors of the paper did for scoring.

    >>> split_compounds("die E-Mail-Adresse - nur die")
    'die E ##AT##-##AT## Mail ##AT##-##AT## Adresse - nur die'
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def score_files(hypotheses, references) -> str:
    """Return the scores of a file of translations, as lines: by sacreBLEU, then as in the paper.

    Both files contain plain, detokenised text. The name of the references ends in their language:
    test.de, test.fr.
    Raises UserError for files that cannot be read, for unequal line counts, and for lines that have
    more than a translation.
    """
    pairs, language = [*map(read_lines, (hypotheses, references))], Path(references).suffix[1:]
    if any(map(_NOT_PLAIN.match, pairs[0][:1])):
        raise UserError(
            f"{hypotheses} has lines of --format json or --nbest: translate without these options, "
            "and score the plain translations"
        )
    lines = [bleu(*pairs, tokenize=tokenizer_of(language)).text]
    try:
        lines.append(paper_bleu(*pairs, language).text)
    except UserError as error:
        lines.append(str(error))
    for path, side in zip((hypotheses, references), pairs, strict=True):
        if mistake := decoding_warning(path, side):
            lines.append(f"notice: {mistake}")
        if sum(line.endswith(" .") for line in side) > len(side) / 2:
            lines.append(
                f"notice: {path} looks tokenised, but both scores are defined for plain text: "
                "detokenise it first"
            )
    return "\n".join(lines)


def _as_lists(hypotheses, references):
    hypotheses, references = list(hypotheses), list(references)
    if len(hypotheses) != len(references):
        raise UserError(
            f"{amount(len(hypotheses), 'translation')} but "
            f"{amount(len(references), 'reference')}: "
            "give one reference for each translation"
        )
    if not references:
        raise UserError("nothing to score: give at least one translation and its reference")
    return hypotheses, references


def _bleu(result, signature, name="BLEU"):
    return Bleu(
        score=result.score,
        signature=signature,
        precisions=tuple(result.precisions),
        brevity_penalty=result.bp,
        hypothesis_length=result.sys_len,
        reference_length=result.ref_len,
        text=result.format(signature=signature).replace("BLEU", name, 1),
    )


def _moses(language):
    """Return the Moses tokenizer: a function that puts spaces between the tokens of a line."""
    if language not in ("de", "fr"):
        raise UserError(
            "paper-style BLEU not computed: it exists for German and French only, and the name of "
            "the reference file does not end in .de or .fr; if it is German or French, rename it"
        )
    try:
        from sacremoses import MosesTokenizer
    except ImportError:
        raise UserError(
            "paper-style BLEU not computed: it needs the package sacremoses: pip install sacremoses"
        ) from None
    tokenizer = MosesTokenizer(lang=language)
    return lambda line: tokenizer.tokenize(line, escape=False, return_str=True)


def perplexity(model, subwords, pairs, batch_tokens=4096, progress=None) -> float:
    """Return the perplexity: among how many equally likely tokens the model chooses, in effect.

        perplexity = exp( - 1/n sum_t ln p(y_t | y_1 ... y_t-1, x) )

    n counts the target tokens but those among the model's suppressed ids, which it cannot write.
    The likelihood is the plain one, without label smoothing. Lower is better, but only models with
    the same subwords can be compared (the paper's Table 3 is per subword as well).
    progress: called with the number of pairs done and of all pairs.
    """
    sources = subwords.encode(pairs.source, side="source")
    targets = subwords.encode(pairs.target, side="target")
    lengths = [np.array([len(ids) + 1 for ids in side]) for side in (sources, targets)]
    total, n_tokens, done = 0.0, 0, 0
    with model.evaluating(), no_grad():
        for rows in plan_batches(*lengths, batch_tokens, np.random.default_rng(0)):
            batch = make_batch(
                [sources[i] for i in rows], [targets[i] for i in rows], len(subwords)
            )
            _, nll = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens=1)
            total += float(nll)
            n_tokens += model.count_targets(batch.target_out)
            done += len(rows)
            if progress:
                progress(done, len(sources))
    return math.exp(min(total / max(1, n_tokens), 700))


# The validations of a run -------------------------------------------------------------------------


@dataclasses.dataclass
class ValidationScores:
    """What the validations of a run found.

    validated: the step of the last one. best, best_perplexity: the highest BLEU, and the lowest
    perplexity. bad_validations: how many in a row improved neither.
    """

    validated: int = 0
    best: float = -1.0
    best_perplexity: float = math.inf
    bad_validations: int = 0

    def add(self, step, perplexity, bleu):
        """Add the perplexity and the BLEU of the validation after this step."""
        better = bleu > self.best or perplexity < self.best_perplexity
        self.bad_validations = 0 if better else self.bad_validations + 1
        self.best = max(bleu, self.best)
        self.best_perplexity = min(perplexity, self.best_perplexity)
        self.validated = step


class Validator:
    """Translates and scores texts of a dataset.

    stop: a StopRequest; once a stop is requested, Interrupted is raised in the middle of a text.
    """

    def __init__(self, dataset, settings, stop):
        self.dataset, self.settings, self.stop = dataset, settings, stop

    def measure(self, translator):
        """Return the perplexity and the greedy BLEU on the validation text."""
        valid, subwords = self.dataset.valid, self.dataset.subwords
        with self._progress("pairs validated") as progress:
            value = perplexity(translator.model, subwords, valid, progress=progress)
        lines = self.translate(translator, valid.source, "sentences translated", beam=1)
        return value, self.score(lines, valid.target)

    def translate(self, translator, lines, task, beam):
        """Return the best translations of lines. task: what the progress bar says is done."""
        # The model is measured by itself, and it may have learned to write trees.
        search = Search(beam, self.settings.alpha, self.settings.max_extra, wellformed=False)
        with self._progress(task) as progress:
            translations = translator.translate(lines, search, progress=progress)
        return [best[0].text for best in translations]

    def score(self, lines, references):
        """Return the BLEU of translations; text that came tokenised is not tokenised again."""
        corpus = self.dataset.corpus
        tokenize = "none" if corpus.tokenised else tokenizer_of(corpus.target_language)
        return bleu(lines, self.dataset.references(references), tokenize=tokenize)

    @contextlib.contextmanager
    def _progress(self, task):
        """Give a function for `progress=`, which raises Interrupted once a stop is requested."""
        with Progress(task) as bar:

            def progress(done, total):
                if self.stop.reason:
                    raise Interrupted
                bar.total = total
                bar.update_to(done)

            yield progress
