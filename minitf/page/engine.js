// The Transformer of "Attention Is All You Need" in plain JavaScript: it translates in a page.
//
// It reads top to bottom: subwords, the layers of figure 1, the encoder, the decoder (one token at
// a time, with the keys and values of earlier tokens in a cache), greedy decoding, beam search.
// Letters: D d_model, F d_ff, H heads, K d_k, V vocabulary, S source length, W width of the beam.
//
// Models that fit: the paper's, as the trainer of minitf makes them by default, and those with their
// norms before the sub-layers. One matrix for both embeddings and the output, ReLU, interleaved
// sinusoids, no biases in attention and output, subwords of SentencePiece (byte-pair encoding with
// bytes as a fallback).
// The page's writer (minitf/page/writer.py) refuses any other.
//
// A vector is a Float32Array, a sequence an array of vectors, a matrix (n, m) a Float32Array of its
// m columns, one after another. JavaScript computes in float64; what is stored in a vector is
// rounded.
"use strict";

// Weights -----------------------------------------------------------------------------------------

// Return the model: config, pieces and named arrays. low: a byte of each of their numbers; high: the
// other byte of those that are float16.
function loadModel(head, low, high) {
  const weights = {};
  let start = 0, halves = 0;
  for (const [name, shape, run, scales] of head.arrays) {
    const size = shape.reduce((a, b) => a * b), bytes = low.subarray(start, start += size);
    weights[name] = scales ? fromInt8(bytes, run, scales)
      : fromFloat16(bytes, high.subarray(halves, halves += size));
  }
  const ids = new Map(head.pieces.map((piece, id) => [piece, id]));
  const longestPiece = Math.max(...head.pieces.map((piece) => piece.length));
  return { config: head.config, pieces: head.pieces, longestPiece, ids, weights };
}

// A reader of the page may change what a model does. It then has a field `changes`:
// weights(name, head, row, weights) gets the attention weights of a row, which is the number of the
// token that looks, and returns those that are used instead; withoutPositions leaves the sinusoids
// out.

// Return finite float16 numbers as float32; low, high: the two bytes of each. Both formats have a
// sign, an exponent (5 or 8 bits, where 15 or 127 means 2^0), and a fraction (10 or 23 bits): bits
// that are moved are too small by 2^(127 - 15).
function fromFloat16(low, high) {
  const bits = new Uint32Array(low.length), numbers = new Float32Array(bits.buffer);
  for (let i = 0; i < bits.length; i++) {
    bits[i] = ((high[i] & 0x80) << 24) | ((high[i] & 0x7f) << 21) | (low[i] << 13);
    numbers[i] *= 2 ** 112;
  }
  return numbers;
}

// Return int8 numbers times their scales, as float32; each scale is for `run` numbers, in turn.
function fromInt8(bytes, run, scales) {
  const whole = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  const numbers = new Float32Array(whole.length);
  for (let i = 0, k = 0; i < whole.length; k = (k + 1) % scales.length)
    for (const stop = i + run; i < stop; i++) numbers[i] = whole[i] * scales[k];
  return numbers;
}

// Subwords ----------------------------------------------------------------------------------------

const SPACE_SIGN = "\u2581"; // SentencePiece's sign for a space
const BYTE = /^<0x([0-9A-F]{2})>$/;
const N_SPECIAL = 4; // <pad> <unk> <s> </s>

// What Python calls white space; JavaScript adds U+FEFF. Control characters are spaces before.
const SPACE = "[^\\S\ufeff]";

// Return the text without white space at its ends.
function strip(text) {
  const space = new RegExp(SPACE);
  let start = 0, end = text.length;
  while (start < end && space.test(text[start])) start++;
  while (start < end && space.test(text[end - 1])) end--;
  return text.slice(start, end);
}

// Text as a person pastes it to text as a model learned it, as in minitf/text/normalise.py.
const INVISIBLE = new RegExp("[\\x00-\\x08\\x0e-\\x1b\\x7f-\\x84\\x86-\\x9f\\u00ad\\u061c\\u180e\\u200b"
  + "\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]", "gu");
const JOINER = /(?<![\u0590-\u{10ffff}])[\u200c\u200d]+/u;
const ALIKE = [[/[\u2018\u2019\u201a\u201b\u2032\u00b4\u02bc]/gu, "'"],
  [/[\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb]/gu, '"'], [/[\u2010\u2011]/gu, "-"],
  [/[\u2012\u2014\u2015\u2212]/gu, "\u2013"], [/\u2026/gu, "..."], [/[\ufb05\ufb06]/gu, "st"],
  [/\ufb00/gu, "ff"], [/\ufb01/gu, "fi"], [/\ufb02/gu, "fl"], [/\ufb03/gu, "ffi"], [/\ufb04/gu, "ffl"]];

function normalise(text) {
  let line = text.replace(/\p{Surrogate}/gu, "\ufffd");
  line = line.replace(INVISIBLE, "").normalize("NFC");
  if (!/[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]/u.test(line))
    line = line.replace(/[\uff01-\uff5e]/gu, (c) => String.fromCharCode(c.charCodeAt(0) - 0xfee0));
  line = line.replace(/(\p{L})\u2014(?=\p{L})/gu, "$1 \u2013 ");
  for (const [pattern, plain] of ALIKE) line = line.replace(pattern, plain);
  line = line.normalize("NFC").replace(/[^\S\ufeff]+|[\x1c-\x1f\x85]+/gu, " ").replace(/ {2,}/g, " ").replace(/^ | $/g, "");
  return JOINER.test(line) ? normalise(line.replace(new RegExp(JOINER, "gu"), "")) : line;
}

// Return a line with a word for each & that is between two words.
function withAnd(line, word) {
  const between = /(?<=[^\s([{]) (?:&|&amp;) (?=[^\s.,;:!?)\]}])/gu;
  const isLoud = /\p{Uppercase}/u.test(line) && !/\p{Lowercase}|\p{Lt}/u.test(line);
  return line.replace(between, ` ${isLoud ? word.toUpperCase() : word} `);
}

// Return the ids of a text by byte-pair encoding: join the two neighbours whose union was learned
// first, again and again. What is not in the vocabulary is spelled in bytes.
function encodeText(model, text) {
  text = normalise(text);
  if (!text) return [];
  const parts = [...(SPACE_SIGN + text.replaceAll(" ", SPACE_SIGN))];
  const isLearned = (piece) => model.ids.get(piece) >= N_SPECIAL && !BYTE.test(piece);
  for (;;) {
    let first = Infinity, at = -1;
    for (let i = 0; i + 1 < parts.length; i++) {
      const union = parts[i] + parts[i + 1];
      if (isLearned(union) && model.ids.get(union) < first) [first, at] = [model.ids.get(union), i];
    }
    if (at < 0) break;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
  }
  return parts.flatMap((part) => (isLearned(part) ? [model.ids.get(part)] : bytesOf(model, part)));
}

const LETTERS = /(?:(?!\p{Nd})[\p{L}\p{N}])+/gu;
const AS_THEY_ARE = new Set(("I USA UK EU UN UNO NATO NASA FBI CIA IBM UFO DNA IQ HIV AIDS UNESCO "
  + "UNICEF CEO").split(" "));

// Return a line IN CAPITALS as it would be written otherwise, if it has fewer subwords then: a model
// that has read few words in capitals makes nonsense of them.
function inSmallLetters(model, line) {
  if (!/\p{Uppercase}/u.test(line) || /\p{Lowercase}|\p{Lt}/u.test(line)) return line;
  const text = line.replace(LETTERS, (word) => smallForm(model, word));
  const [before = ""] = text.match(/^[^\p{L}\p{N}]*/su) ?? [], [first = ""] = text.slice(before.length);
  const small = before + first.toUpperCase() + text.slice(before.length + first.length);
  return encodeText(model, small).length < encodeText(model, line).length ? small : line;
}

// Return a word in capitals as it is probably written: the, Tom, Stra\u00dfe for STRASSE, TV.
function smallForm(model, word) {
  if (AS_THEY_ARE.has(word)) return word;
  const [first] = word, low = word.toLowerCase(), rest = [...low].slice(1).join("");
  const sharp = [...low][0] + rest.replaceAll("ss", "\u00df");  // no word begins with it: SSD
  const tails = [low, sharp].map((text) => first + [...text].slice(1).join(""));
  const forms = [low, tails[0], sharp, tails[1], word];
  const lengths = forms.map((form) => encodeText(model, form).length), least = Math.min(...lengths);
  return least > 1 && lengths.at(-1) === least ? word : forms[lengths.indexOf(least)];
}

// Return whether a text has more than `count` subwords. A very long one surely has, as each subword
// has at most as many characters as the longest of the vocabulary.
function hasMoreThan(model, text, count) {
  return text.length > count * model.longestPiece || encodeText(model, text).length > count;
}

function bytesOf(model, text) {
  const name = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
  return [...new TextEncoder().encode(text)].map((byte) => model.ids.get(name(byte)));
}

// Return the text of ids. Bytes that are not UTF-8 become U+FFFD, control characters disappear.
function decodeIds(model, ids) {
  let text = "", bytes = [];
  const spell = () => { text += textOfBytes(bytes); bytes = []; };
  for (const id of ids) {
    if (id < N_SPECIAL) continue;
    const byte = BYTE.exec(model.pieces[id]);
    if (byte) bytes.push(parseInt(byte[1], 16));
    else { spell(); text += model.pieces[id].replaceAll(SPACE_SIGN, " "); }
  }
  spell();
  return strip(printable(text));
}

// Return the text of bytes, with U+FFFD for each that is not part of a character in UTF-8.
function textOfBytes(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let i = 0; i < bytes.length;) {
    const size = bytes[i] < 0xc0 ? 1 : bytes[i] < 0xe0 ? 2 : bytes[i] < 0xf0 ? 3 : 4;
    try {
      text += decoder.decode(Uint8Array.from(bytes.slice(i, i + size)));
      i += size;
    } catch {
      text += "\ufffd";
      i++;
    }
  }
  return text;
}

// Return what a subword is called in the views; bytes of ASCII are written as themselves.
function nameOf(model, id) {
  return model.pieces[id].replace(/^<0x([2-6][0-9A-F]|7[0-9A-E])>$/, (_, byte) =>
    String.fromCharCode(parseInt(byte, 16)));
}

// Return the text without control characters; those that separate words become spaces.
function printable(text) {
  const spaced = text.replace(/[\t-\r\x1c-\x1f\x85\u2028\u2029]/g, " ");
  return spaced.replace(/[\x00-\x1f\x7f-\x9f]/g, "");
}

// Layers ------------------------------------------------------------------------------------------

// Return x W + b for each vector x of a sequence: (D,) and (D, F) -> (F,).
//
// A number of the result is x times a column of W. Each number of a column is used for four vectors
// while it is at hand: the words of the input, or the texts of a beam.
function linear(sequence, W, b, size) {
  const results = sequence.map(() => new Float32Array(size));
  for (let n = 0; n < sequence.length; n += 4)
    if (n + 1 < sequence.length) fourTimes(sequence.slice(n, n + 4), W, results.slice(n, n + 4));
    else oneTimes(sequence[n], W, results[n]);
  return b ? results.map((y) => y.map((number, j) => number + b[j])) : results;
}

// Write the products of two to four vectors with all columns, two columns at a time.
function fourTimes([x0, x1, x2 = x1, x3 = x2], W, [y0, y1, y2 = y1, y3 = y2]) {
  const D = x0.length, F = y0.length;
  for (let j = 0; j < F; j += 2) {
    const k = Math.min(j + 1, F - 1), column = j * D, other = k * D;
    let a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    for (let i = 0; i < D; i++) {
      const w = W[column + i], v = W[other + i];
      a0 += x0[i] * w; b0 += x0[i] * v;
      a1 += x1[i] * w; b1 += x1[i] * v;
      a2 += x2[i] * w; b2 += x2[i] * v;
      a3 += x3[i] * w; b3 += x3[i] * v;
    }
    y0[j] = a0; y1[j] = a1; y2[j] = a2; y3[j] = a3;
    y0[k] = b0; y1[k] = b1; y2[k] = b2; y3[k] = b3;
  }
}

// Write the products of a vector with all columns, four columns at a time.
function oneTimes(x, W, y) {
  const D = x.length, F = y.length;
  for (let j = 0; j < F; j += 4) {
    const k = Math.min(j + 1, F - 1), l = Math.min(j + 2, F - 1), m = Math.min(j + 3, F - 1);
    const column = j * D, second = k * D, third = l * D, fourth = m * D;
    let a = 0, b = 0, c = 0, d = 0;
    for (let i = 0; i < D; i++) {
      const number = x[i];
      a += number * W[column + i];
      b += number * W[second + i];
      c += number * W[third + i];
      d += number * W[fourth + i];
    }
    y[j] = a; y[k] = b; y[l] = c; y[m] = d;
  }
}

// Return LayerNorm(x) of each vector, with the biased variance. Section 3.1.
function layerNorm(model, name, sequence) {
  const gain = model.weights[`${name}.gain`], bias = model.weights[`${name}.bias`];
  return sequence.map((x) => {
    const D = x.length;
    let mean = 0, variance = 0;
    for (const xi of x) mean += xi / D;
    for (const xi of x) variance += (xi - mean) ** 2 / D;
    const deviation = Math.sqrt(variance + model.config.eps);
    return x.map((xi, i) => ((xi - mean) / deviation) * gain[i] + bias[i]);
  });
}

// A sub-layer in the paper's order is LayerNorm(x + Sublayer(x)); a model with norm = "pre" computes
// x + Sublayer(LayerNorm(x)), and a last norm above all layers. Return what the sub-layer reads ...
function entering(model, name, sequence) {
  return model.config.norm === "pre" ? layerNorm(model, `${name}.norm`, sequence) : sequence;
}

// ... and what leaves it, where `made` is what the sub-layer made.
function leaving(model, name, sequence, made) {
  const sums = sequence.map((x, n) => x.map((xi, i) => xi + made[n][i]));
  return model.config.norm === "pre" ? sums : layerNorm(model, `${name}.norm`, sums);
}

// Return what leaves the encoder or the decoder, of what the top layer made.
function lastNorm(model, name, sequence) {
  return model.config.norm === "pre" ? layerNorm(model, `${name}.norm`, sequence) : sequence;
}

// Return the scores as probabilities: softmax(s)_i = exp(s_i) / sum_j exp(s_j).
function softmax(scores) {
  const highest = scores.reduce((a, b) => Math.max(a, b)); // subtracted, or exp could overflow
  const terms = scores.map((score) => Math.exp(score - highest));
  const sum = terms.reduce((a, b) => a + b);
  return terms.map((term) => term / sum);
}

// Return for each token that looks its vector of attention, softmax(q K^T / sqrt(d_k)) V in each
// head, times W^O; and its weights, for each head an array with that of every key.
// looking: [{ query, keys, values, row }]; row: the number of the token. Section 3.2.
function attend(model, name, looking) {
  const { d_model: D, n_heads: H, d_k: K } = model.config, weights = looking.map(() => []);
  const joined = looking.map(({ query, keys, values, row }, n) => {
    const heads = new Float32Array(H * K);
    for (let h = 0; h < H; h++) {
      const start = h * K;
      const scores = keys.map((key) => {
        let product = 0;
        for (let i = start; i < start + K; i++) product += query[i] * key[i];
        return product / Math.sqrt(K);
      });
      const computed = softmax(scores);
      const ofHead = model.changes?.weights(name, h, row, computed) ?? computed;
      for (let j = 0; j < values.length; j++)
        for (let i = start; i < start + K; i++) heads[i] += ofHead[j] * values[j][i];
      weights[n].push(ofHead);
    }
    return heads;
  });
  return { vectors: linear(joined, model.weights[`${name}.output.weight`], null, D), weights };
}

// Return x W^Q, x W^K or x W^V of all heads, one after another; `what` is query, key or value.
function project(model, name, what, sequence) {
  const { n_heads: H, d_k: K } = model.config;
  return linear(sequence, model.weights[`${name}.${what}.weight`], null, H * K);
}

// Return max(0, x W_1 + b_1) W_2 + b_2 of each vector. Section 3.3.
function feedForward(model, name, sequence) {
  const { d_model: D, d_ff: F } = model.config, w = model.weights;
  const inner = linear(sequence, w[`${name}.inner.weight`], w[`${name}.inner.bias`], F);
  const rectified = inner.map((y) => y.map((number) => Math.max(0, number)));
  return linear(rectified, w[`${name}.outer.weight`], w[`${name}.outer.bias`], D);
}

// Return the learned vector of a token, times sqrt(d_model). Section 3.4.
function embeddingOf(model, id) {
  const D = model.config.d_model, E = model.weights["embedding.weight"];
  return E.subarray(id * D, (id + 1) * D).map((number) => number * Math.sqrt(D));
}

// Return the vector of a position: sines and cosines in turn. Section 3.5.
function sinusoid(D, position) {
  return Float32Array.from({ length: D }, (_, i) => {
    const angle = position / 10000 ** ((i - (i % 2)) / D);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// Return what enters the first layer: the embedding of a token plus the sinusoid of its position.
function embed(model, id, position) {
  const embedding = embeddingOf(model, id);
  if (model.changes?.withoutPositions) return embedding;
  const wave = sinusoid(embedding.length, position);
  return embedding.map((number, i) => number + wave[i]);
}

// Encoder and decoder -----------------------------------------------------------------------------

// Return what the decoder and the views need of a source. ids: of its tokens, with the end mark.
// layers: for each layer of the encoder the queries, keys and values, the weights, and the vectors
// that it makes. caches: for each layer of the decoder the keys and values of the memory, which is
// what leaves the encoder: they are the same at every step.
function encode(model, ids) {
  let x = ids.map((id, position) => embed(model, id, position));
  const layers = [];
  for (let l = 0; l < model.config.n_layers; l++) {
    const layer = `encoder.layers.${l}`, name = `${layer}.self_attention`;
    const attention = `${layer}.attention_residual`, network = `${layer}.feed_forward_residual`;
    const read = entering(model, attention, x);
    const [queries, keys, values] = ["query", "key", "value"].map((what) =>
      project(model, name, what, read));
    const { vectors, weights } = attend(model, name, queries.map((query, row) =>
      ({ query, keys, values, row })));
    x = leaving(model, attention, x, vectors);
    x = leaving(model, network, x,
      feedForward(model, `${layer}.feed_forward`, entering(model, network, x)));
    layers.push({ queries, keys, values, weights, output: x });
  }
  const memory = lastNorm(model, "encoder", x);
  const caches = Array.from({ length: model.config.n_decoder_layers }, (_, l) => {
    const name = `decoder.layers.${l}.source_attention`;
    return { keys: project(model, name, "key", memory),
      values: project(model, name, "value", memory) };
  });
  return { ids, layers, caches };
}

// Read the newest tokens of some texts, which go on in different ways. Return for each token the
// logits of the next one; for each text the caches with these tokens; and for each layer the
// queries and the weights of both attentions, and the vectors that it makes.
// texts: [{ ids, caches }]: the newest tokens, and for each layer the keys and values of the tokens
// before, if there are any. They are not changed, so several texts may continue the same caches.
function decode(model, source, texts) {
  const rows = texts.flatMap(({ ids, caches }, text) => ids.map((id, n) =>
    ({ id, text, row: (caches?.[0].keys.length ?? 0) + n })));
  const grown = texts.map(() => []), layers = [];
  let x = rows.map(({ id, row }) => embed(model, id, row));
  source.caches.forEach((ofSource, l) => {
    const layer = `decoder.layers.${l}`, own = `${layer}.self_attention`;
    const read = entering(model, `${layer}.self_residual`, x);
    const [queries, keys, values] = ["query", "key", "value"].map((what) =>
      project(model, own, what, read));
    texts.forEach(({ caches }, text) => {
      const ofText = (vectors) => vectors.filter((_, n) => rows[n].text === text);
      grown[text].push({ keys: [...(caches?.[l].keys ?? []), ...ofText(keys)],
        values: [...(caches?.[l].values ?? []), ...ofText(values)] });
    });
    // A token sees itself and the tokens before it: the mask.
    const self = attend(model, own, rows.map(({ text, row }, n) => ({ query: queries[n], row,
      keys: grown[text][l].keys.slice(0, row + 1),
      values: grown[text][l].values.slice(0, row + 1) })));
    x = leaving(model, `${layer}.self_residual`, x, self.vectors);
    const cross = `${layer}.source_attention`, asking = `${layer}.source_residual`;
    const sourceQueries = project(model, cross, "query", entering(model, asking, x));
    const ofInput = attend(model, cross, rows.map(({ row }, n) =>
      ({ query: sourceQueries[n], row, ...ofSource })));
    x = leaving(model, asking, x, ofInput.vectors);
    const network = `${layer}.feed_forward_residual`;
    x = leaving(model, network, x,
      feedForward(model, `${layer}.feed_forward`, entering(model, network, x)));
    layers.push({ queries, weights: self.weights, sourceQueries, sourceWeights: ofInput.weights,
      output: x });
  });
  // The score of every token of the vocabulary: x E^T. Section 3.4. A row of E is a column of E^T.
  const logits = linear(lastNorm(model, "decoder", x), model.weights["embedding.weight"], null,
    model.config.vocabulary_size);
  return { logits, caches: grown, layers };
}

// Return ln P of every next token; padding and the start mark are never written.
function logProbabilities(model, logits) {
  const highest = logits.reduce((a, b) => Math.max(a, b));
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - highest);
  const logSumExp = Math.log(sum) + highest;
  const found = new Float64Array(logits).map((logit) => logit - logSumExp);
  found[model.config.pad_id] = found[model.config.bos_id] = -Infinity;
  return found;
}

// Search ------------------------------------------------------------------------------------------

const MAX_EXTRA = 50; // tokens that a translation may be longer than its source. Section 6.1.
const ALPHA = 0.6; // the exponent of the length penalty. Section 6.1.

// lp(Y) = ((5 + |Y|) / 6)^alpha; |Y| counts the end mark. Section 6.1; Wu et al. 2016, eq. 14.
const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;

// Return the indices of the `count` greatest numbers of a long list; among equals the lower one
// comes first.
function greatestIndices(numbers, count) {
  const best = [];
  for (let i = 0; i < numbers.length; i++) {
    if (best.length === count && numbers[i] <= numbers[best[count - 1]]) continue;
    let at = best.length;
    while (at > 0 && numbers[best[at - 1]] < numbers[i]) at--;
    best.splice(at, 0, i);
    if (best.length > count) best.pop();
  }
  return best;
}

// Return a token that is drawn from softmax(ln P / temperature). draw: returns numbers below 1, from
// 0 on.
function sampled(next, temperature, draw) {
  const highest = next.reduce((a, b) => Math.max(a, b));
  const terms = Array.from(next, (p) => Math.exp((p - highest) / temperature));
  const drawn = draw() * terms.reduce((a, b) => a + b);
  let sum = 0; // of the same numbers in the same order: at last it is more than what was drawn
  return terms.findIndex((term) => (sum += term) > drawn);
}

const mostProbable = (next) => greatestIndices(next, 1)[0];

// Return the greatest length of a translation, with its end mark.
const limitOf = (source, maxExtra) => Math.max(1, source.ids.length - 1 + maxExtra);

// Choose the next token again and again, by default the most probable one, up to the end mark.
// source: what `encode` returned. onToken: called with the ids so far; may be async.
// choose: returns a token, given ln P of each.
async function greedy(model, source, alpha = ALPHA, maxExtra = MAX_EXTRA, onToken = () => {},
  choose = mostProbable) {
  const { bos_id: bos, eos_id: eos } = model.config, found = [];
  let total = 0, length = 0, id = bos, caches = null;
  while (length < limitOf(source, maxExtra)) {
    const step = decode(model, source, [{ ids: [id], caches }]);
    const next = logProbabilities(model, step.logits[0]);
    id = choose(next);
    [caches, length, total] = [step.caches[0], length + 1, total + next[id]];
    if (id === eos) break;
    found.push(id);
    await onToken(found);
  }
  const score = total / lengthPenalty(length, alpha);
  return { ids: found, logProbability: total, score, beam: [] };
}

// Return the `count` most probable texts that have one token more than these, the best first.
function bestContinuations(model, source, texts, count) {
  const { logits, caches } = decode(model, source, texts.map((text) =>
    ({ ids: [text.last], caches: text.caches })));
  const continuations = texts.flatMap((text, parent) => {
    const next = logProbabilities(model, logits[parent]);
    return greatestIndices(next, count).filter((id) => next[id] > -Infinity).map((id) => ({
      ids: [...text.ids, id], last: id, parent, caches: caches[parent],
      total: text.total + next[id] }));
  });
  continuations.sort((a, b) => b.total - a.total); // stable: the earlier text comes first
  return continuations.slice(0, count);
}

// Keep the W most probable beginnings of the translation, and finish the best of them.
// The program of minitf/decode.py for one sentence; `beam` gets the same record of every step.
async function beamSearch(model, source, W = 4, alpha = ALPHA, maxExtra = MAX_EXTRA,
  onToken = () => {}) {
  const { bos_id: bos, eos_id: eos } = model.config;
  const limit = limitOf(source, maxExtra), finished = [], cut = [], beam = [];
  const hypothesis = (text, length) => ({ ids: text.ids, logProbability: text.total,
    score: text.total / lengthPenalty(length, alpha) });
  let texts = [{ ids: [], last: bos, total: 0, caches: null }];
  for (let length = 1; ; length++) {
    const best = bestContinuations(model, source, texts, 2 * W);
    const ended = best.flatMap((text, r) => (text.last === eos && r < W ? [r] : []));
    const kept = best.flatMap((text, r) => (text.last !== eos ? [r] : [])).slice(0, W);
    for (const r of ended)
      finished.push(hypothesis({ ...best[r], ids: best[r].ids.slice(0, -1) }, length));
    beam.push({ parents: best.map((t) => t.parent), tokens: best.map((t) => t.last),
      log_probabilities: best.map((t) => t.total), finished: ended, kept });
    texts = kept.map((r) => best[r]);
    if (!texts.length || length >= limit) {
      cut.push(...texts.map((text) => hypothesis(text, length)));
      break;
    }
    await onToken(texts[0].ids);
    finished.sort((a, b) => b.score - a.score);
    // ln P falls with every token: no text can get a better score than this.
    const bound = texts[0].total / lengthPenalty(limit, alpha);
    if (finished.length >= W && bound <= finished[0].score) break;
  }
  for (const list of [finished, cut]) list.sort((a, b) => b.score - a.score);
  return { ...(finished[0] ?? cut[0]), beam };
}

// Explain -----------------------------------------------------------------------------------------

// Read a whole translation at once, and return all attention weights, [layer][head][row][column] of
// each kind, the five most probable tokens of each step, queries, keys and values, and the vectors:
// [token] as they enter the first layer and as they leave each.
function explainPass(model, source, targetIds) {
  const read = [model.config.bos_id, ...targetIds.slice(0, -1)], T = read.length;
  const { logits, caches: [caches], layers } = decode(model, source, [{ ids: read }]);
  const steps = logits.map((ofToken) => {
    const next = logProbabilities(model, ofToken);
    return greatestIndices(next, 5).map((i) => [nameOf(model, i), Math.exp(next[i])]);
  });
  // A row of the decoder has weights for the tokens that it sees; the mask hides the rest.
  const untilEnd = (row) => [...row, ...new Array(T - row.length).fill(0)];
  const weights = {
    encoder: source.layers.map((layer) => byHead(layer.weights)),
    decoder: layers.map((layer) => byHead(layer.weights).map((head) => head.map(untilEnd))),
    source: layers.map((layer) => byHead(layer.sourceWeights)),
  };
  const inner = {
    d_model: model.config.d_model,
    d_k: model.config.d_k,
    encoder: source.layers,
    decoder: caches.map((cache, l) => ({ ...cache, queries: layers[l].queries })),
    source: source.caches.map((cache, l) => ({ ...cache, queries: layers[l].sourceQueries })),
  };
  const vectors = {
    embeddings: source.ids.map((id) => embeddingOf(model, id)),
    source: [source.ids.map((id, i) => embed(model, id, i)),
      ...source.layers.map(({ output }) => output)],
    target: [read.map((id, i) => embed(model, id, i)), ...layers.map(({ output }) => output)],
  };
  return { weights, steps, inner, vectors };
}

// Return rows[i][h] as heads[h][i].
function byHead(rows) {
  return rows[0].map((_, h) => rows.map((row) => row[h]));
}

if (typeof module !== "undefined") // in node, for tests
  module.exports = {
    loadModel, normalise, withAnd, encodeText, inSmallLetters, decodeIds, nameOf, encode, greedy,
    beamSearch, explainPass, sampled,
  };
