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
        "going = (tokens != end_id) & (lengths[rows] < limits[rows])",
        "going = lengths[rows] < limits[rows]",
    ),
    "greedy adds up logits, not ln P": (
        "totals[rows] += chosen - sums",
        "totals[rows] += chosen",
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
        "length = texts.shape[1] - 1  # without the start mark, with the end mark",
        "length = texts.shape[1] - 2",
    ),
    # The rules of beam search
    "a beam that keeps the worst": (
        "if not end][: self.beam]",
        "if not end][-self.beam :]",
    ),
    "an end mark that counts at any place": (
        "for place in range(self.beam):",
        "for place in range(len(ends)):",
    ),
    "a search that stops as soon as k texts are finished": (
        "self.done = bound <= scores[self.n_best - 1]",
        "self.done = True",
    ),
    "a bound with the penalty of the present length": (
        "bound = highest / self.penalty(self.limit)",
        "bound = highest / self.penalty(length)",
    ),
    "texts that were cut off come first": (
        "for hypotheses in (self.finished, self.cut):",
        "for hypotheses in (self.cut, self.finished):",
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
        "self.kept = [array[to_device(rows)] for",
        "self.kept = [array[: len(rows)] for",
    ),
    "a cache that forgets the text": (
        "self.kept = [F.concatenate(pair, axis=2) for pair in zip(self.kept, new, strict=True)]",
        "self.kept = list(new)",
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
