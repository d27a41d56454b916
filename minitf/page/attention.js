// The view Attention: which tokens look at which.
"use strict";

// Two lines of tokens: those that are looked at, and under them those that look. A token of either
// can be chosen; bars over the tokens of the other line show the weights.
function showAttention(section) {
  const { kind, layer, head, reverse } = chosen, [rows, columns] = namesOf(kind);
  chosen.row = Math.min(chosen.row, (reverse ? columns : rows).length - 1);
  const [above, below] = { source: ["Input: looked at", "Output: about to be written, looking"],
    encoder: ["Input: looked at", "Input: looking"],
    decoder: ["Output: already written, looked at", "Output: about to be written, looking"] }[kind];
  const incomplete = shown.isCut ? ", with those of the tokens that are not shown" : "";
  section.append(
    paragraph("Choose a word: the bars of the other line show where it looks, or which words look "
      + "at it. The weights of a word that looks sum to 1."),
    controls(),
    element("h3", {}, above), tokenLine(above, columns, true),
    element("h3", {}, below), tokenLine(below, rows, false),
    element("p", { class: "said" },
      element("span", { id: "said" }, `${saidOf(rows, columns)}.`), whoLooks()),
    element("p", { class: "note" }, `${titleOf(kind, layer, head)}.`),
    element("div", { class: "controls" }, button("All its heads", () => openView("heads")),
      ...(hasModel ? [button("By hand", () => openView("hand"))] : []),
      button("Its mask", () => openView("masks"))),
    more(
      "Attention makes a new vector for a word: a sum of vectors that are made from the words it "
        + `looks at, each times its weight. The weights of one that looks sum to 1${incomplete} `
        + "(here they are rounded); those of the words that look at one need not.",
      "Each layer has several heads: attentions side by side, with weights of their own. The lines "
        + "on the stage are those of the head that is chosen here, or their mean.",
      ...(kind === "encoder" ? [] : ["To choose the next token, the decoder uses its vector at the "
        + "last token that it has read. So a token of the lower line stands for the step that "
        + "writes it, but its weights are computed at the token before."
        + (kind === "decoder" ? " The last one that it may see is therefore the token at which it "
          + "is computed, which looks at itself." : "")]),
      "In each layer of the encoder, the tokens of the input look at each other and at "
        + "themselves. A layer of the decoder does the same with the tokens that are already "
        + "written, and then looks at the vectors that the last layer of the encoder has made of "
        + "the input. Left out of the picture: residual connections and normalisation, which "
        + "follow each step, and the matrix before the softmax, which makes a number for each "
        + "token of the vocabulary."));
}

// Return a sentence about a chosen token of the output, which looks before it is written.
function whoLooks() {
  if (chosen.kind === "encoder" || chosen.reverse) return "";
  return ` Computed at the token before it, ${isolated(word(alreadyRead()[chosen.row]))}.`;
}

// Return the weights between the chosen token and those of the other line; null where the mask
// hides one from the other.
function weightsOfChosen() {
  const { kind, layer, head, reverse, row } = chosen, matrix = matrixOf(kind, layer, head);
  const places = reverse ? matrix.map((_, t) => [t, row]) : matrix[row].map((_, s) => [row, s]);
  return places.map(([t, s]) => (isHidden(kind, t, s) ? null : matrix[t][s]));
}

// Return in words where the chosen token looks, or which tokens look at it.
function saidOf(rows, columns) {
  const [own, others] = chosen.reverse ? [columns, rows] : [rows, columns];
  const weights = weightsOfChosen(), name = isolated(word(own[chosen.row]));
  const told = greatest(weights, 4).filter((i, rank) => weights[i] > (rank ? 0.05 : 0));
  const list = told.map((i) => `${isolated(word(others[i]))} ${weights[i].toFixed(2)}`)
    .join(", ");
  return `${name} ${chosen.reverse ? "is looked at by" : "attends to"} ${list || "none of these"}`;
}

function tokenLine(title, names, isColumns) {
  const isOwn = isColumns === chosen.reverse, weights = isOwn ? [] : weightsOfChosen();
  const pick = (i) => {
    [chosen.reverse, chosen.row] = [isColumns, i];
    update(showAttention, idOfChosen());
    if (hasModel) update(showByHand);
    lightUp(keyOf(chosen.kind, isColumns, i));
    announce(document.getElementById("said").textContent);
  };
  const buttonOf = (name, i) => {
    const node = element("button", { type: "button", dir: "auto",
      id: `${isColumns ? "column" : "row"}-${i}`, "data-token": keyOf(chosen.kind, isColumns, i),
      "aria-pressed": String(isOwn && i === chosen.row), onclick: () => pick(i) },
    element("span", {}, word(name)));
    if (isOwn) return node;
    node.prepend(tallBar(weights[i]));
    node.append(element("small", {},
      ` ${weights[i] === null ? "hidden" : weights[i].toFixed(2)}`));
    return node;
  };
  return moveWithArrows(element("div", { class: "words", role: "group", "aria-label": title,
    dir: directionOf(isOfSource(chosen.kind, isColumns)),
    lang: languageOf(chosen.kind, isColumns) }, ...names.map(buttonOf)), true);
}

// Return the key of a token on the stage: s0, s1 ... of the input, t0, t1 ... of the output.
function keyOf(kind, isColumns, i) {
  if (isOfSource(kind, isColumns)) return `s${i}`;
  return !isColumns ? `t${i}` : i ? `t${i - 1}` : "start";
}

const idOfChosen = () => `${chosen.reverse ? "column" : "row"}-${chosen.row}`;

const titleOf = (kind, layer, head) => `${NAMES[kind]}, layer ${layer + 1}, ${headName(head)}`;

// Return the number of the output's token that looks farthest from its own place: a good first one.
function farthestLooking() {
  const matrix = matrixOf("source", shown.weights.source.length - 1, -1);
  const distances = matrix.map((row, t) => {
    const [s] = greatest(row, 1);
    return row[s] < 0.5 || s === row.length - 1 ? 0 : Math.abs(s / row.length - t / matrix.length);
  });
  return greatest(distances, 1)[0];
}

// Return a bar that fills the part p of its height; a hatched one for null, what a mask hides.
function tallBar(p) {
  const bar = element("span", { class: p === null ? "tall masked" : "tall", "aria-hidden": "true" },
    element("span"));
  bar.firstChild.style.height = `${100 * p}%`;
  return bar;
}

const isOfSource = (kind, isColumns) => kind === "encoder" || (kind === "source" && isColumns);

// Return the language of the rows or columns of a kind, for screen readers.
function languageOf(kind, isColumns) {
  return data.languages[isOfSource(kind, isColumns) ? 0 : 1] || null;
}

// Return a list to choose the attention from.
function kindOnly(id) {
  const choose = (value) => {
    chooseKind(value);
    document.getElementById(id).focus();
  };
  return element("div", { class: "controls" },
    select("Attention:", id, KINDS, chosen.kind, choose));
}

function controls() {
  const ofKind = shown.weights[chosen.kind];
  const layers = Object.fromEntries(ofKind.map((_, l) => [l, `layer ${l + 1}`]));
  const heads = Object.fromEntries([-1, ...ofKind[0].keys()].map((h) =>
    [` ${h}`, headName(h)])); // with a space, as JavaScript would put whole numbers first
  const set = (name, id) => (value) => {
    if (name === "kind") [chosen.head, chosen.reverse] = [-1, false];
    chosen[name] = name === "kind" ? value : Number(value);
    chosen.layer = Math.min(chosen.layer, shown.weights[chosen.kind].length - 1);
    updateChosen(id);
  };
  return element("div", { class: "controls" },
    select("Attention:", "kind", KINDS, chosen.kind, set("kind", "kind")),
    select("Layer:", "layer", layers, chosen.layer, set("layer", "layer")),
    select("Head:", "of-head", heads, ` ${chosen.head}`, set("head", "of-head")));
}

// Return the indices of the `count` greatest numbers of a short list, greatest first.
function greatest(numbers, count) {
  return numbers.map((_, i) => i).sort((a, b) => numbers[b] - numbers[a]).slice(0, count);
}
