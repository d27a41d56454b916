// The views Tokens, Vectors and Feed-forward: the plain parts of the model.
"use strict";

function showWords(section) {
  const pieces = inPieces();
  section.append(
    paragraph("The model reads and writes tokens: words, pieces of rarer words, and marks. It "
      + "knows a fixed list of them, its vocabulary."),
    element("h3", {}, "Input"), tokenList(shown.source, "s", 0),
    element("h3", {}, "Output"), tokenList(shown.target, "t", 1),
    ...(pieces.length ? [paragraph(`Read in pieces: ${pieces.map(isolated).join(", ")}.`)] : []),
    more("A piece that continues a word has a hyphen at its front. <s> is the mark of the start, "
      + "</s> that of the end: the decoder writes it to say that it is done.",
    "The pieces were found in the training text by byte-pair encoding: the two neighbours that "
      + "stand together most often become one piece, again and again."));
}

function tokenList(tokens, side, isOutput) {
  return element("p", { class: "tokens", dir: directionOf(!isOutput),
    lang: data.languages[isOutput] || null }, ...tokens.flatMap((token, i) =>
    [element("bdi", { "data-token": `${side}${i}` }, word(token)), " "]));
}

function showVectors(section) {
  section.append(
    paragraph("For the model, a word is a list of numbers. Training has found them, so that words "
      + "that are used alike have similar ones."),
    vectorTable(),
    more("The embedding of a token is the same wherever it stands. Attention does not see the "
      + "order of the words: so a wave of sines and cosines, different for each place, is added.",
    "On the stage, a strip is a vector: blue numbers are positive, brown ones negative, white is "
      + "0. Each layer replaces the vectors by new ones, of the same length."));
}

function vectorTable() {
  const { embeddings, source } = shown.vectors, D = embeddings[0].length;
  const few = (vector) => Array.from(vector.slice(0, 3), (x) =>
    x.toFixed(2).replace("-", "\u2212")).join("  ");
  const minus = (a, b) => a.map((x, i) => x - b[i]);
  const headings = ["token", "embedding", "+ place", "after the encoder"];
  return scrollBox("Vectors", element("table", { class: "numbers" },
    element("caption", {}, shown.inner ? `The first 3 of ${D} numbers` : "Some of their numbers"),
    element("thead", {}, element("tr", {}, ...headings.map((name) =>
      element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...shown.source.map((token, s) => element("tr", { "data-token": `s${s}` },
      element("th", { scope: "row", dir: "auto" }, word(token)),
      ...[embeddings[s], minus(source[0][s], embeddings[s]), source.at(-1)[s]].map((vector) =>
        element("td", {}, few(vector))))))));
}

function showNetwork(section) {
  const F = hasModel && JSON.parse(document.getElementById("head").textContent).config;
  section.append(
    paragraph("After each attention, a small network changes every vector by itself. Words do not "
      + "look at each other here."),
    element("p", { class: "formula" }, "FFN(x) = max(0, x W", element("sub", {}, "1"), " + b",
      element("sub", {}, "1"), ") W", element("sub", {}, "2"), " + b", element("sub", {}, "2")),
    more((F ? `Here x has ${F.d_model} numbers, and the hidden layer ${F.d_ff}. ` : "")
      + "What attention or the network makes of a vector is added to that vector (the residual "
      + "connection), and the sum is normalised: its mean becomes 0 and its variance 1, times a "
      + "learned gain and plus a learned bias.",
    "Encoder and decoder are stacks of such layers, each with weights of its own."));
}
