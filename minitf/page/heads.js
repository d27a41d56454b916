// The view Heads: all heads of an attention, each as a small picture and in words, and one large.
"use strict";

// Return bits: 0 for attention to one token, log2(n) for the same to each of n tokens.
const entropy = (row) => row.reduce((sum, p) => sum - (p > 0 ? p * Math.log2(p) : 0), 0);

// Return 1 - the Jensen-Shannon divergence in bits, as a mean over rows: 1 for equal heads.
function similarity(a, b) {
  return average(a.map((row, t) => {
    const middle = row.map((p, s) => (p + b[t][s]) / 2);
    return 1 - (entropy(middle) - (entropy(row) + entropy(b[t])) / 2);
  }));
}

// Where the heads of a kind often look, in words; habitsOf has the same in numbers.
const PLACES = {
  encoder: "at the same token, the one before, the one after, the end mark",
  decoder: "at the token just written, the one before it, the start mark",
  source: "at the input in order, that is, within a tenth of it from the square's diagonal; at the "
    + "end mark",
};

// Return what a head of a kind may do, each with a function of row t and column s that says whether
// the head then looks from t at s. T rows, S columns, the end mark in column `end`.
function habitsOf(kind, T, S, end) {
  const inOrder = (t) => (t * (S - 1)) / Math.max(1, T - 1); // on the line from corner to corner
  const habits = {
    encoder: {
      "looks at the same token": (t, s) => s === t,
      "looks at the token before": (t, s) => s === t - 1,
      "looks at the token after": (t, s) => s === t + 1,
    },
    decoder: {
      "looks at the token just written": (t, s) => s === t,
      "looks one token further back": (t, s) => s === t - 1,
      "rests on the start mark": (t, s) => s === 0,
    },
    source: { // within a tenth of the input, or nearest to the line in a short one
      "goes through the input in order": (t, s) =>
        Math.abs(s - inOrder(t)) <= Math.max(0.5, S / 10),
    },
  };
  return Object.entries({ ...habits[kind], "rests on the end mark": (t, s) => s === end });
}

// Return in words what a head does, from the mean weight that it gives to some places: it always
// does what gets 0.7 or more, and in part what gets 0.6. A row that has no such place is not
// counted, and neither is the first row of the decoder, which sees nothing but the start mark.
function describe(kind, matrix) {
  const [, columns] = namesOf(kind), first = kind === "decoder" ? 1 : 0;
  const habits = habitsOf(kind, matrix.length, columns.length, columns.indexOf("</s>"));
  const found = habits.flatMap(([what, looksAt]) => {
    const weights = matrix.map((row, t) => row.filter((_, s) => looksAt(t, s))).slice(first)
      .filter((places) => places.length).map((places) => places.reduce((a, b) => a + b));
    return weights.length ? [[what, average(weights)]] : [];
  });
  const [what, weight] = found.sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
  if (weight >= 0.6) return `${weight >= 0.7 ? "" : "in part: "}${what} (${weight.toFixed(2)})`;
  const sharp = average(matrix.map((row) => Math.max(...row)));
  const greatestIs = `the greatest weight of a row: ${sharp.toFixed(2)}`;
  return `each row looks ${sharp >= 0.7 ? "mostly at one token" : "at several tokens"} `
  + `(${greatestIs})`;
}

function showHeads(section) {
  const { kind } = chosen, layers = shown.weights[kind];
  shown.twins ??= {}; // kept, as comparing all heads of a long sentence takes a while
  shown.twins[kind] ??= layers.map((heads, l) => heads.map((_, h) =>
    !shown.isCut && nearest(layers, l, h)));
  const grid = element("div", { class: "heads", role: "group", "aria-label": "Choose a head" },
    ...layers.flatMap((heads, l) => heads.map((_, h) => headButton(kind, l, h))));
  section.append(
    paragraph(`Each square is a head of the ${NAMES[kind]}: a row is a token that looks, a column `
      + "one that is looked at, darker is more. Choose one to see it large, and on the stage."),
    kindOnly("kind-of-heads"),
    moveWithArrows(grid), largeMap(),
    more(element("p", {}, "The shade grows with the square root of a weight, so that small ones "
      + "can be seen. Beside a square:"),
    element("ul", {},
      element("li", {}, "what the head does, roughly and in this sentence only: where its rows "
        + `look (${PLACES[kind]}), with the part of their weight that goes there, `
        + "as a mean over rows; \u201cin part\u201d if that is less than 0.7. Where none of these "
        + "places fits: the greatest weight of a row, as a mean;"),
      element("li", {}, "the entropy of a row, as a mean, which tells how widely its weights are "
        + "spread: 0 bits if all are on one token, 1 bit if on two equally, 2 bits if on four;"),
      element("li", {}, "the head that is most like it, and how much: 1 if both have the "
        + "same weights, 0 if they have nothing in common (1 minus the Jensen-Shannon "
        + "divergence)."))));
}

// Return the button of a head: a picture of it, and what is said about it.
function headButton(kind, l, h) {
  const matrix = shown.weights[kind][l][h], twin = shown.twins[kind][l][h], id = `head-${l}-${h}`;
  const like = twin ? `; most like layer ${twin.layer + 1}, head ${twin.head + 1} `
    + `(${twin.similarity.toFixed(2)})` : "";
  // Of a part of the rows, neither would be true of the head.
  const text = shown.isCut ? "only its first tokens are shown" : describe(kind, matrix);
  const numbers = shown.isCut ? "" : ` ${average(matrix.map(entropy)).toFixed(1)} bits${like}`;
  const onclick = () => {
    [chosen.layer, chosen.head] = [l, h];
    updateChosen(id);
    announce(text);
  };
  return element("button", { type: "button", id, class: "head", onclick,
    "aria-pressed": String(l === chosen.layer && h === chosen.head) },
  thumbnail(kind, matrix),
  element("span", { class: "what" }, element("b", {}, `layer ${l + 1}, head ${h + 1} `), text,
    element("small", {}, numbers)));
}

function nearest(layers, layer, head) {
  let best = null;
  layers.forEach((heads, l) => heads.forEach((matrix, h) => {
    if (l === layer && h === head) return;
    const value = similarity(layers[layer][head], matrix);
    if (!best || value > best.similarity) best = { layer: l, head: h, similarity: value };
  }));
  return best;
}

// Return a small picture of a matrix: one pixel of the canvas is one weight.
function thumbnail(kind, matrix) {
  const canvas = element("canvas", { width: matrix[0].length, height: matrix.length,
    "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  matrix.forEach((row, t) => row.forEach((weight, s) => image.data.set(
    isHidden(kind, t, s) ? HIDDEN : shade(weight), 4 * (t * row.length + s))));
  context.putImageData(image, 0, 0);
  return canvas;
}

const HIDDEN = [222, 222, 222, 255]; // grey, as no weight is

// Return red, green, blue and opacity of a weight: one hue, from white to dark blue.
function shade(weight) {
  const part = Math.sqrt(Math.min(1, weight)); // so that small weights can be seen
  const between = (from, to) => Math.round(from + (to - from) * part);
  return [between(255, 8), between(255, 48), between(255, 107), 255];
}

// Return the chosen head, large, with its words, a table of its numbers, and the ways to save it.
function largeMap() {
  const { kind, layer, head } = chosen, [rows, columns] = namesOf(kind);
  const matrix = matrixOf(kind, layer, head);
  const title = titleOf(kind, layer, head);
  const picture = mapOf(kind, matrix, title), tsv = tsvOf(rows, columns, matrix);
  return element("figure", {}, element("figcaption", {}, title),
    scrollBox(title, picture),
    element("p", { class: "note" }, "Weights of 0.1 and more are written into their cells."
      + (kind === "decoder" ? " Grey cells are hidden by the mask." : "")),
    element("p", { class: "controls" },
      button("Save SVG", () => save("attention.svg", "image/svg+xml", svgText(picture))),
      button("Save PNG", async () => save("attention.png", "image/png", await pngOf(picture))),
      button("Copy numbers (TSV)", (event) => copy(tsv, event.target)),
      button("Save numbers (TSV)", () => save("attention.tsv", "text/tab-separated-values", tsv))),
    element("details", { class: "numbers-of-map" }, element("summary", {}, "The numbers as a "
      + "table"),
      ...tablesOf(rows, columns, matrix, title)));
}

// Return a picture of a matrix with its tokens.
function mapOf(kind, matrix, title) {
  const [rows, columns] = namesOf(kind);
  const cell = columns.length > 16 ? 26 : 36; // large on a projector
  const across = widestOf(columns); // written at 50 degrees, upwards
  const left = 12 + widestOf(rows), top = 30 + Math.ceil(0.77 * across);
  const right = Math.max(60, 20 + Math.ceil(0.65 * across));
  const size = [left + cell * columns.length + right, top + cell * rows.length + 8];
  const picture = pictureOf(...size, { role: "img",
    "aria-label": `${title}; its numbers are in the table below`,
    "font-family": "sans-serif", "font-size": 13, "data-map": true });
  picture.append(svg("rect", { width: size[0], height: size[1], fill: "#fff" }));
  columns.forEach((name, s) => picture.append(svg("text", { fill: "#111",
    "data-token": keyOf(kind, true, s),
    transform: `translate(${left + cell * (s + 0.6)} ${top - 6}) rotate(-50)` }, word(name))));
  rows.forEach((name, t) => {
    picture.append(svg("text", { x: left - 6, y: top + cell * (t + 0.65), "text-anchor": "end",
      fill: "#111", "data-token": keyOf(kind, false, t) }, word(name)));
    const pair = (s) => [name, columns[s]].map((each) => isolated(word(each))).join(" \u2192 ");
    matrix[t].forEach((weight, s) => picture.append(...cellOf(weight, isHidden(kind, t, s),
      left + cell * s, top + cell * t, cell, pair(s))));
  });
  return picture;
}

// Return an empty picture.
function pictureOf(width, height, attributes) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, ...attributes });
}

// Return the square of a weight at (x, y), and where it is large enough, its number.
function cellOf(weight, hidden, x, y, size, title) {
  const colour = hidden ? HIDDEN : shade(weight);
  const square = svg("rect", { x, y, width: size - 1, height: size - 1,
    fill: `rgb(${colour.slice(0, 3)})`, stroke: "#bbb", "stroke-width": 0.5 },
  svg("title", {}, `${title}: ${weight.toFixed(2)}`));
  if (weight < 0.1) return [square];
  return [square, svg("text", { x: x + size / 2, y: y + size * 0.65, "font-size": size * 0.4,
    "text-anchor": "middle", fill: weight > 0.43 ? "#fff" : "#000" },
  weight.toFixed(2).replace(/^0/, ""))];
}

// Return the pixels of the widest name in a large map.
const widestOf = (names) =>
  Math.ceil(Math.max(...names.map((name) => widthOf(word(name), "13px sans-serif"))));

// Return the numbers as rows of a spreadsheet, with the tokens as headings; one that contains a
// quote is quoted. At the front, these signs of ASCII would make a formula of it.
function tsvOf(rows, columns, matrix) {
  const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
  const others = { "-": "\u2010", "+": "\uff0b", "=": "\uff1d", "@": "\uff20" };
  const cell = (token) =>
    word(token).replace(/^[-+=@]/, (sign) => others[sign]).replace(/^.*".*$/, quoted);
  const lines = [["", ...columns.map(cell)],
    ...rows.map((name, t) => [cell(name), ...matrix[t].map((weight) => weight.toFixed(3))])];
  return lines.map((line) => line.join("\t")).join("\n");
}

// Return the picture as a file.
function svgText(picture) {
  const copy = picture.cloneNode(true);
  copy.removeAttribute("style");
  return new XMLSerializer().serializeToString(copy);
}

// Return the picture as a PNG, two pixels for each of its own.
async function pngOf(picture) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svgText(picture))}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve));
}
