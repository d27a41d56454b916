// The translation that is shown: stored in the page by Python, or made by the model in the page.
//
// All text enters the page as text, never as markup. Weights are
// shown.weights[kind][layer][head][row][column].
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const hasModel = document.getElementById("head") !== null;
const KINDS = {
  encoder: "self-attention of the input",
  decoder: data.decoder === "ssru" ? "SSRU state of the output" : "self-attention of the output",
  source: "from the output to the input",
};
const NAMES = { source: "decoder-to-source attention", encoder: "encoder self-attention",
  decoder: data.decoder === "ssru" ? "decoder SSRU state" : "decoder self-attention" };
let shown = null;
// What the reader has chosen. view: the one that is open; head: -1 for the mean of all; row: the
// number of a token in the line of those that look, or with `reverse`, of those that are looked at;
// every: all numbers of a vector.
const chosen = { view: null, kind: "source", layer: 0, head: -1, row: 0, reverse: false, step: 0,
  alpha: data.search.alpha, every: false };

// Stored ------------------------------------------------------------------------------------------

// Return the bytes of base64; browsers of 2025 have a fast way.
function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text), bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

// Return the bytes of a text: it is base64 of deflated bytes.
async function unpack(text) {
  const { readable, writable } = new DecompressionStream("deflate-raw");
  const writer = writable.getWriter(), reader = readable.getReader(), pieces = [];
  writer.write(bytesOfBase64(text));
  writer.close();
  let size = 0;
  for (let piece; (piece = (await reader.read()).value); size += piece.length) pieces.push(piece);
  const bytes = new Uint8Array(size);
  for (const piece of pieces.reverse()) bytes.set(piece, size -= piece.length);
  return bytes;
}

// Return arrays that Python packed: { shape, numbers } by name; unit: what one byte is.
async function unpackArrays(arrays, Bytes, unit) {
  const unpacked = Object.entries(arrays).map(async ([name, { shape, packed }]) => {
    const { buffer } = await unpack(packed);
    return [name, { shape, numbers: Array.from(new Bytes(buffer), (byte) => byte / unit) }];
  });
  return Object.fromEntries(await Promise.all(unpacked));
}

// Return numbers as an array of arrays of arrays ... of this shape.
function shaped(numbers, [, ...shape]) {
  if (!shape.length) return numbers;
  const size = shape.reduce((a, b) => a * b), parts = [];
  for (let start = 0; start < numbers.length; start += size)
    parts.push(shaped(numbers.slice(start, start + size), shape));
  return parts;
}

// Return the translation that Python stored: its weights are bytes, 255 for 1; of its vectors, it
// has some numbers, as bytes, 32 for 1.
async function storedTranslation() {
  const [weights, vectors, beam] = await Promise.all([unpackArrays(data.weights, Uint8Array, 255),
    unpackArrays(data.vectors, Int8Array, 32), unpack(data.beam)]);
  for (const arrays of [weights, vectors])
    for (const name in arrays) arrays[name] = shaped(arrays[name].numbers, arrays[name].shape);
  return { line: data.line, translation: data.translation, source: data.source, target: data.target,
    weights, vectors, steps: data.steps, beam: JSON.parse(new TextDecoder().decode(beam)),
    width: data.search.width, limit: data.search.limit, isCut: data.is_cut };
}

// Return the tokens of the rows and columns of a kind. The decoder's row t decides on target token
// t, so it has that name, and has read the tokens before it.
function namesOf(kind) {
  return { source: [shown.target, shown.source], encoder: [shown.source, shown.source],
    decoder: [shown.target, alreadyRead()] }[kind];
}

const alreadyRead = () => ["<s>", ...shown.target.slice(0, -1)];

// Return whether the mask hides column s from row t: the decoder does not see the future.
const isHidden = (kind, t, s) => kind === "decoder" && s > t;

// Return the weights of a head as rows; head -1 is the mean of all heads of the layer.
function matrixOf(kind, layer, head) {
  const heads = shown.weights[kind][layer];
  if (head >= 0) return heads[head];
  return heads[0].map((row, t) => row.map((_, s) => average(heads.map((each) => each[t][s]))));
}

const headName = (head) => (head < 0 ? "mean of all heads" : `head ${head + 1}`);

// Made in the page -------------------------------------------------------------------------------

const isRead = new Promise((resolve) => addEventListener("DOMContentLoaded", resolve));
const WATCHED = 100; // ms; so often the text that is being written is shown
let unpacking = null; // the promise of the model in this page
let busy = false;
let isSmoothed = false; // whether the model in this page was trained with label smoothing

// Return the model, when the browser has read the page to its end, where the weights are.
function unpackModel() {
  const textOf = (id) => document.getElementById(id).content.textContent;
  unpacking ??= isRead.then(() => unpack(textOf("high"))).then((high) =>
    loadModel(JSON.parse(document.getElementById("head").textContent),
      bytesOfBase64(textOf("low")), high));
  return unpacking;
}

// Return the words that are read in pieces.
function inPieces() {
  const words = [], isUnspaced = new RegExp(`${UNSPACED}$`, "u");
  for (const [i, token] of shown.source.entries())
    if (i && continues(token) && !isUnspaced.test(shown.source[i - 1])) words.at(-1).push(token);
    else words.push([token]);
  return words.filter((pieces) => pieces.length > 1).map((pieces) => {
    const [space, ...others] = pieces; // which may be a piece by itself
    const told = space === "\u2581" ? [space + others[0], ...others.slice(1)] : pieces;
    return `${word(pieces.join(""))}${told.length > 1 ? ` (${told.map(word).join(" ")})` : ""}`;
  });
}

const SEVERAL = /[.!?\u2026]["'\u201d\u2019)\]]*\s+\p{Lu}/u; // where probably another sentence begins

// Translate a text in the page, all of it as one sentence. onText: called with the text so far. search: width of the beam, or
// with a temperature above 0, draw: what returns the numbers that choose each token.
// Throws an Error with one line for the reader if there is nothing to translate, or too much.
async function translate(text, { width, temperature = 0, draw }, onText = () => {}) {
  const model = await unpackModel();
  const { alpha, max_extra: maxExtra } = data.search;
  const { max_subwords: maxSubwords, max_unsplit: maxUnsplit } = data.search;
  const given = withAnd(normalise(text), data.search.and);
  const line = data.search.reads_capitals ? given : inSmallLetters(model, given);
  if (!line) throw new Error("Type a sentence first.");
  if (hasMoreThan(model, line, maxSubwords))
    throw new Error(`This is too long: the model reads up to ${maxSubwords} tokens at once, and a word `
      + "that it does not know has several. Type less.");
  const ids = encodeText(model, line), eos = model.config.eos_id;
  const source = encode(model, [...ids, eos]);
  let watched = performance.now();
  const write = async (found) => {
    onText(decodeIds(model, found));
    await new Promise((resolve) => setTimeout(resolve)); // lets the browser draw
    watched = performance.now();
  };
  const onToken = (found) => performance.now() - watched > WATCHED && write(found);
  const choose = temperature > 0 ? (next) => sampled(next, temperature, draw) : mostProbable;
  const best = width > 1 && !temperature
    ? await beamSearch(model, source, width, alpha, maxExtra, onToken)
    : await greedy(model, source, alpha, maxExtra, onToken, choose);
  await write(best.ids); // the views follow
  const target = [...best.ids, eos];
  const names = (list) => list.map((id) => nameOf(model, id));
  const beam = best.beam.map((step) => ({ ...step, tokens: names(step.tokens) }));
  const isSeveral = SEVERAL.test(line) && hasMoreThan(model, line, maxUnsplit);
  return { line, isSeveral, translation: decodeIds(model, best.ids),
    source: names(source.ids), target: names(target), ...explainPass(model, source, target), beam,
    width: temperature ? 1 : width, temperature, limit: Math.max(1, ids.length + maxExtra), ids };
}

// Find out what greedy decoding makes of the sentence that is shown, if that is something else.
async function compareWithGreedy() {
  const found = shown, { alpha, max_extra: maxExtra } = data.search;
  if (!found.ids || found.greedy || storyOfBeam().turn < 0) return;
  const model = await unpackModel(), source = encode(model, [...found.ids, model.config.eos_id]);
  const { ids } = await greedy(model, source, alpha, maxExtra);
  found.greedy = decodeIds(model, ids);
  paint();
}
