// The view Beam: the texts that beam search compared.
"use strict";

// Return the beam as nodes: { parent, token, total, kept, finished, column } for each step.
function beamNodes(beam) {
  const columns = [];
  let texts = [null];
  for (const [column, step] of beam.entries()) {
    const nodes = step.tokens.map((token, rank) => ({
      token, column, parent: texts[step.parents[rank]] ?? null, total: step.log_probabilities[rank],
      kept: step.kept.includes(rank), finished: step.finished.includes(rank) }));
    columns.push(nodes.filter((node) => node.total !== null && node.total > -Infinity));
    texts = step.kept.map((rank) => nodes[rank]);
  }
  return columns;
}

// Return the text that ends at a node; a character that is spelled in bytes, such as an emoji, is
// written as itself. U+FEFF is no white space: Python keeps it, too.
function textOf(node) {
  const tokens = [];
  for (let at = node; at; at = at.parent) if (at.token !== "</s>") tokens.unshift(at.token);
  const isByte = (token) => /^<0x[0-9A-F]{2}>$/.test(token);
  const bytes = tokens.flatMap((token) => (isByte(token) ? Number(token.slice(1, -1))
    : [...new TextEncoder().encode(token.replaceAll("\u2581", " "))]));
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  return text.replace(/^[^\S\ufeff]+|[^\S\ufeff]+$/g, "");
}

// Return the text that ends at a node, with a dot between the pieces of a word: the texts of one
// step have the same number of tokens, not of words.
function inTokens(node) {
  const text = textOf(node), pieces = [];
  for (let at = node; at; at = at.parent) if (at.token !== "</s>") pieces.unshift(word(at.token));
  const told = pieces.reduce((sum, piece) => sum + (/^-./.test(piece) ? `\u00b7${piece.slice(1)}`
    : ` ${piece}`), "").trim();
  return told.replaceAll("\u00b7", "").replace(/ (?=\p{P})/gu, "") === text
    ? told.replace(/ (?=\p{P})/gu, "") : text;
}

// Return the length of a finished text with its end mark: each column adds a token.
const lengthOf = (node) => node.column + 1;

function showBeam(section) {
  const columns = beamNodes(shown.beam);
  if (!columns.length) {
    section.append(element("p", {}, "This translation was made without a beam: greedy decoding "
      + "takes the most likely token at each step."));
    return;
  }
  const { width } = shown, { alpha } = data.search, label = element("span"), tree = element("div");
  const list = element("div");
  const rank = () => {
    const scrolled = tree.firstChild?.scrollLeft ?? 0;
    label.textContent = `alpha ${chosen.alpha} `;
    tree.replaceChildren(
      scrollBox("Tree of the beam", beamTree(columns, winnerOf(columns))),
      element("p", { class: "said", id: "text-of-node" }));
    tree.firstChild.scrollLeft = scrolled;
    list.replaceChildren(...listOfFinished(columns));
  };
  const slider = element("input", { type: "range", id: "alpha", min: 0, max: Math.max(2, alpha),
    step: 0.05, value: chosen.alpha,
    oninput: (event) => {
      chosen.alpha = Number(event.target.value);
      rank();
      announce(`alpha ${chosen.alpha}: ${textOf(winnerOf(columns))}`);
    } });
  section.append(
    paragraph(`At each step, the search keeps the ${width} most probable beginnings, not one: so a `
      + "first word that only seems best cannot spoil the sentence. The heavy line leads to the "
      + "winner; choose a box to read its text."),
    tree,
    element("div", { class: "controls" }, element("label", {}, label, slider)),
    list,
    more(`The search ran with alpha ${data.search.alpha}. Another alpha ranks what it finished `
      + "anew; a search with it could find others.",
    element("p", {}, `Each column shows the ${2 * width} most probable `
      + "continuations of the texts that were kept in the column before: twice as many as the beam "
      + `is wide, so that ${width} can go on where some end. The number is ln P, the logarithm `
      + "of the probability of the text so far."),
    element("ul", {},
      element("li", {}, "Solid frame: kept, and continued in the next column, if there is one."),
      element("li", {}, `Double frame: finished by the end mark, among the best ${width} of its `
        + "column."),
      element("li", {}, "Dashed frame: dropped.")),
    element("p", {}, `The search ends when ${width} or more texts are finished and none that is `
      + "kept could still get a better score than the best of them. The score is explained below: "
      + "ln P only falls, but a longer text is divided by a greater penalty, so the search reckons "
      + `with the greatest length that is allowed, ${shown.limit} tokens.`),
    element("p", {}, "score = ln P / penalty, penalty = ((5 + length) / 6)",
      element("sup", {}, "alpha"), "; the length counts </s>. Each further token makes ln P "
        + "less, so without a penalty short texts would win. A greater alpha favours longer "
        + "ones.")));
  rank();
}

// Bring a step of the tree into sight.
function scrollToStep(step) {
  const box = document.querySelector("#beam .scroll");
  if (box) box.scrollLeft = ACROSS * (step - 1);
}

// Return the list of the finished translations, for the chosen alpha.
function listOfFinished(columns) {
  const finished = ranked(columns), lengths = new Set(finished.map(({ node }) => lengthOf(node)));
  if (!finished.length) return [element("p", { class: "note" }, "None of these texts ended before "
    + "the greatest length: the most probable one is taken.")];
  const rows = finished.map(({ node, penalty, score }) => element("tr", {},
    element("th", { scope: "row", dir: "auto", lang: data.languages[1] || null }, textOf(node)),
    ...[node.total.toFixed(2), lengthOf(node), penalty.toFixed(2), score.toFixed(2)].map(
      (number) => element("td", {}, String(number)))));
  const head = ["translation", "ln P", "length", "penalty", "score"].map((name) =>
    element("th", { scope: "col" }, name));
  return [
    element("p", { class: "note" }, "The finished translations, best first."
      + (lengths.size === 1 ? " All have the same length, so alpha cannot change their order."
        : "")),
    scrollBox("Finished translations", element("table", { class: "ranked" },
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)))];
}

// Return the finished texts with their length penalty and score, best first.
function ranked(columns) {
  return columns.flat().filter((node) => node.finished).map((node) => {
    const penalty = ((5 + lengthOf(node)) / 6) ** chosen.alpha;
    return { node, penalty, score: node.total / penalty };
  }).sort((a, b) => b.score - a.score);
}

// Return the best finished text, or the most probable one where none ended before the limit.
const winnerOf = (columns) => ranked(columns)[0]?.node ?? columns.at(-1).find((node) => node.kept);

const ACROSS = 96; // pixels from a step of the tree to the next

// Return a picture of the beam: a column of boxes for each step, and lines from a text to the texts
// that continue it.
function beamTree(columns, winner) {
  const down = 38, path = new Set();
  for (let at = winner; at; at = at.parent) path.add(at);
  const rows = Math.max(...columns.map((nodes) => nodes.length));
  const picture = pictureOf(ACROSS * columns.length + 8, down * rows + 8, { role: "group",
    class: "tree", "aria-label": `The beam over ${columns.length} steps; the table below lists `
      + "what it found" });
  columns.forEach((nodes, c) => nodes.forEach((node, r) => {
    Object.assign(node, { x: 4 + ACROSS * c, y: 4 + down * r });
    if (node.parent) picture.append(lineTo(node, path.has(node)));
  }));
  for (const node of columns.flat()) picture.append(boxOf(node, path.has(node)));
  return moveWithArrows(picture);
}

const BOX = { width: 78, height: 32 }; // of a text in the tree

// Return the line to a node from the text that it continues; isWon: it leads to the winner.
function lineTo(node, isWon) {
  const fromX = node.parent.x + BOX.width, fromY = node.parent.y + BOX.height / 2;
  const toX = node.x, toY = node.y + BOX.height / 2;
  const state = node.kept || node.finished ? "line" : "line dropped";
  return svg("path", { class: isWon ? "line won" : state,
    d: `M${fromX} ${fromY}C${fromX + 14} ${fromY} ${toX - 14} ${toY} ${toX} ${toY}` });
}

// Return the box of a node: its token and ln P.
function boxOf(node, isWon) {
  const state = node.finished ? "finished" : node.kept ? "kept" : "dropped";
  const { x, y } = node, { width, height } = BOX, middle = x + width / 2;
  const text = fitted(word(node.token), width - 8, "12px system-ui, sans-serif");
  const told = `${isolated(textOf(node) || text)}: ln P ${node.total.toFixed(2)}, ${state}`;
  const tell = () => {
    document.getElementById("text-of-node").textContent = `${told}.`;
    for (const picked of document.querySelectorAll(".picked")) picked.classList.remove("picked");
    for (let at = node; at; at = at.parent) at.box.classList.add("picked");
  };
  const box = svg("g", { class: `node ${state}${isWon ? " won" : ""}`, role: "button",
    "aria-label": `${text} ${node.total.toFixed(2)}: ${told}`, onclick: tell, onfocus: tell },
  svg("title", {}, told),
  svg("rect", { x, y, width, height, rx: 4 }));
  if (node.finished)
    box.append(svg("rect", { x: x + 3, y: y + 3, width: width - 6, height: height - 6, rx: 2 }));
  box.append(
    svg("text", { x: middle, y: y + 15, "text-anchor": "middle" }, text),
    " ", svg("text", { x: middle, y: y + 27, "text-anchor": "middle", class: "small" },
      node.total.toFixed(2)));
  node.box = box;
  return box;
}
