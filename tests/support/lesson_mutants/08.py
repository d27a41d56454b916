"""Mistakes in the code that lesson 08 teaches: {mistake: (correct text, wrong text)}.

Each correct text occurs once in the package. The lesson must notice each mistake.
"""

MUTANTS = {
    # Greedy decoding
    "greedy writes padding and the start mark": (
        "    for token in never:\n        logits[:, token] = -xp.inf\n",
        "",
    ),
    "the share of padding is given to the others": (
        "    sums = logsumexp(logits)\n    refuse_infinite",
        "    for token in never:\n"
        "        logits[:, token] = -xp.inf\n"
        "    sums = logsumexp(logits)\n    refuse_infinite",
    ),
    "greedy writes on after the end mark": (
        "done = (tokens == end_id) | (left <= 1)",
        "done = left <= 1",
    ),
    "greedy adds up logits, not ln P": (
        "totals[sentences] += chosen - sums",
        "totals[sentences] += chosen",
    ),
    "the limit counts the source's end mark": (
        "special = (model.config.pad_id, model.config.eos_id)",
        "special = (model.config.pad_id,)",
    ),
    # The length penalty
    "a penalty with 4 in place of 5": (
        "return ((5 + length) / 6) ** alpha",
        "return ((4 + length) / 6) ** alpha",
    ),
    "a beam without the length penalty": (
        "score = total / self.penalty(length)",
        "score = total",
    ),
    "an end mark that is not counted": (
        "score = total / self.penalty(length)",
        "score = total / self.penalty(length - 1)",
    ),
    # The rules of beam search
    "a beam that keeps the worst": (
        'kept = ends.argsort(axis=1, kind="stable")[:, : self.beam]',
        'kept = (~ends).argsort(axis=1, kind="stable")[:, -self.beam :]',
    ),
    "an end mark that counts at any place": (
        "in zip(*ends[:, : self.beam].nonzero(), strict=True):",
        "in zip(*ends.nonzero(), strict=True):",
    ),
    "a search that stops as soon as k texts are finished": (
        "done[i] = bound <= self.hypotheses[sentences[i]][self.n_best - 1].score",
        "done[i] = True",
    ),
    "a bound with the penalty of the present length": (
        "bound = highest[i] / self.penalty(self.limits[sentences[i]])",
        "bound = highest[i] / self.penalty(length)",
    ),
    "texts that were cut off come first": (
        "                self._add(sentences[i], ids, totals[i, place], length)\n",
        "                cut = Hypothesis(ids, float(totals[i, place]), 0.0)\n"
        "                self.hypotheses[sentences[i]].insert(0, cut)\n",
    ),
    "n best texts in the order of ln P": (
        "key=lambda hypothesis: -hypothesis.score)",
        "key=lambda hypothesis: -hypothesis.log_probability)",
    ),
    "continuations of the wrong beam": (
        "best % size, best // size, np",
        "best % size, best % width, np",
    ),
    "continuations compared by the last token alone": (
        "sums = totals[:, :, None] + to_numpy(logits)",
        # An empty place of a beam has -inf, which stays.
        "sums = np.where(totals > -np.inf, 0, totals)[:, :, None] + to_numpy(logits)",
    ),
    # The cache
    "a cache that keeps the wrong beams": (
        "self.arrays = [array[to_device(rows)] for",
        "self.arrays = [array[: len(rows)] for",
    ),
    "a cache that forgets the text": (
        "self.arrays = [F.concatenate(pair, axis=2) for pair in pairs] if self.arrays else new",
        "self.arrays = new",
    ),
    "positions that stay 0 with the cache": (
        "x = self.target_positions(x, position)",
        "x = self.target_positions(x, 0)",
    ),
    "a source that belongs to the wrong beam": (
        "self.memory, self.mask = self.memory[to_device(rows)], self.mask[rows]",
        "self.memory, self.mask = self.memory[: len(rows)], self.mask[: len(rows)]",
    ),
    # BLEU
    "translations and references exchanged": (
        "metric.corpus_score(hypotheses, [references])",
        "metric.corpus_score(references, [hypotheses])",
    ),
    "a brevity penalty that is always 1": ("brevity_penalty=result.bp,", "brevity_penalty=1.0,"),
    "another tokenisation by default": (
        'lowercase: bool = False, tokenize: str = "13a"',
        'lowercase: bool = False, tokenize: str = "char"',
    ),
}
