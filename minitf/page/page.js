// The views of the page. Each has a function that fills its section from `shown`, the translation
// that is on the page: the one that Python stored in it, or one that the page made itself.
//
// All text enters the page as text, never as markup. Weights are
// shown.weights[kind][layer][head][row][column].
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const hasModel = document.getElementById("head") !== null;
const KINDS = {
  source: "decoder to source: the next token looks at the input",
  encoder: "encoder: the tokens of the input look at each other",
  decoder: "decoder: the next token looks at those already written",
};
const NAMES = { source: "decoder-to-source attention", encoder: "encoder self-attention",
  decoder: "decoder self-attention" };
const SVG = "http://www.w3.org/2000/svg";
let shown = null;
// What the reader has chosen. head: -1 for the mean of all; row: the number of a token in the line
// of those that look, or with `reverse`, of those that are looked at; every: all numbers of a
// vector.
const chosen = { kind: "source", layer: 0, head: -1, row: 0, reverse: false, step: 0,
  alpha: data.search.alpha, every: false };

// Tools -------------------------------------------------------------------------------------------

// Return an element. Attributes whose name begins with "on" are listeners.
function element(tag, attributes = {}, ...children) {
  return withContent(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return withContent(document.createElementNS(SVG, tag), attributes, children);
}

function withContent(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

// Return a box for what may be wider than the page: it scrolls by itself, also with the arrow keys.
// A picture in it grows with the text of the page.
function scrollBox(label, ...children) {
  for (const picture of children.filter((child) => child.namespaceURI === SVG))
    picture.style.width = `${picture.getAttribute("width") / 16}rem`;
  return element("div", { class: "scroll", role: "group", "aria-label": label }, ...children);
}

// Make the boxes that scroll now, and no others, reachable by Tab.
function markScrolling() {
  for (const box of document.querySelectorAll(".scroll"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
}

// Thai, Lao, Myanmar, Khmer, Chinese and Japanese have no blanks between words, so no token tells
// whether it continues one. The ranges of minitf/page/writer.py.
const UNSPACED = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\u2e80-\u2fdf\u3005-\u3007"
  + "\u3021-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff"
  + "\uff66-\uff9f\u{1b000}-\u{1b16f}\u{20000}-\u{3ffff}]";
const hasPieces = data.source.some((token) => token.startsWith("\u2581"));
const PIECE = new RegExp(`^(?!${UNSPACED})[\\p{L}\\p{M}]`, "u");

// Return the name of a token: a word, or with a hyphen at its front, a piece that continues one.
const continues = (token) => hasPieces && PIECE.test(token);
const word = (token) =>
  (continues(token) ? `-${token}` : token).replace(/^\u2581/, "") || "\u2423";

// Return a name, or another piece of text, so that its direction does not change that of the text
// around it.
const isolated = (name) => `\u2068${name}\u2069`;

const FROM_RIGHT = new RegExp("^(ara?|arz|ary|acm|apc|arc|aii|syr|syc|he|heb|iw|fa|fas|pes|prs|ur"
  + "|urd|yi|yid|ji|ps|pus|pbt|sd|snd|ug|uig|dv|div|ckb|ks|azb|nqo)([-_]|$)");
const RIGHT_SCRIPTS = ["Arabic", "Hebrew", "Syriac", "Thaana", "Nko"]
  .map((name) => `\\p{Script=${name}}`).join("");
const RIGHT_LETTER = new RegExp(`^\\P{L}*[${RIGHT_SCRIPTS}]`, "u");

// Return the direction in which the source or the target is written: that of its language, or if
// that is not known, of its first letter.
function directionOf(isSource) {
  const code = data.languages[isSource ? 0 : 1], text = isSource ? shown.line : shown.translation;
  return (code ? FROM_RIGHT.test(code) : RIGHT_LETTER.test(text)) ? "rtl" : "ltr";
}

const percent = (p) => (p < 0.0005 ? "< 0.1 %" : `${(100 * p).toFixed(1)} %`);
const average = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;

const ruler = document.createElement("canvas").getContext("2d");

// Return how wide a text is, in pixels; font: size and family.
function widthOf(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}

// Return a text, or if it is wider than `room`, its beginning. No character is cut in two.
function fitted(text, room, font) {
  if (widthOf(text, font) <= room) return text;
  const characters = [...text], cut = () => `${characters.join("")}\u2026`;
  while (characters.length > 1 && widthOf(cut(), font) > room) characters.pop();
  return cut();
}

// Let a screen reader say a text; language: its code, if it is not English.
function announce(text, language) {
  const live = document.getElementById("live");
  live.lang = language || "en";
  live.textContent = text;
}

// Move the focus in a group of buttons with the arrow keys, Home and End: one stop for Tab in all.
// chooses: whether the button that gets the focus is also pressed.
function moveWithArrows(group, chooses = false) {
  const buttons = [...group.querySelectorAll("button, [role=button]")];
  const isPressed = (button) => button.getAttribute("aria-pressed") === "true";
  const first = buttons.find(isPressed) ?? buttons[0];
  for (const button of buttons) button.tabIndex = button === first ? 0 : -1;
  group.onkeydown = (event) => {
    const last = buttons.length - 1, at = buttons.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
      Home: 0, End: last }[event.key];
    if (next === undefined || at < 0) return;
    event.preventDefault();
    const button = buttons[Math.min(last, Math.max(0, next))];
    for (const other of buttons) other.tabIndex = other === button ? 0 : -1;
    button.focus();
    if (chooses) button.click();
  };
  return group;
}

// Return the bytes of a text: it is base64 of deflated bytes.
async function unpack(text) {
  const characters = atob(text), packed = new Uint8Array(characters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = characters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Return the translation that Python stored: its weights are bytes, 255 for 1.
async function storedTranslation() {
  const weights = {};
  for (const [kind, { shape: [L, H, T, S], packed }] of Object.entries(data.weights)) {
    const numbers = await unpack(packed);
    const row = (start) => Array.from(numbers.subarray(start, start + S), (byte) => byte / 255);
    weights[kind] = Array.from({ length: L }, (_, l) => Array.from({ length: H }, (_, h) =>
      Array.from({ length: T }, (_, t) => row(((l * H + h) * T + t) * S))));
  }
  const beam = JSON.parse(new TextDecoder().decode(await unpack(data.beam)));
  return { line: data.line, translation: data.translation, source: data.source, target: data.target,
    weights, steps: data.steps, beam, width: data.search.width, limit: data.search.limit,
    isCut: data.is_cut };
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

const TABLE = 20; // columns of one table, as many as a sheet of paper has room for

// Return tables of the numbers, with a heading for each row and column: what the pictures show.
function tablesOf(rows, columns, matrix, title) {
  const tables = [];
  for (let start = 0; start < columns.length; start += TABLE) {
    const part = columns.slice(start, start + TABLE), end = start + part.length;
    const which = part.length < columns.length ? `, columns ${start + 1} to ${end}` : "";
    const head = element("tr", {}, element("td"), ...part.map((name) =>
      element("th", { scope: "col", dir: "auto" }, word(name))));
    const body = rows.map((name, t) => element("tr", {},
      element("th", { scope: "row", dir: "auto" }, word(name)),
      ...matrix[t].slice(start, end).map((weight) => element("td", {}, weight.toFixed(2)))));
    tables.push(scrollBox(`Numbers${which}`, element("table", {},
      element("caption", {}, `${title}${which}`), element("thead", {}, head),
      element("tbody", {}, ...body))));
  }
  return tables;
}

// Return a bar for each word: name, bar, number.
function bars(names, numbers, format = (p) => p.toFixed(2)) {
  return element("ul", { class: "bars" }, ...names.map((name, i) => {
    const bar = element("span", { class: "bar" }, element("span"));
    bar.firstChild.style.width = `${100 * numbers[i]}%`;
    return element("li", {}, element("span", { class: "name", dir: "auto" }, name), bar,
      element("span", { class: "number" }, format(numbers[i])));
  }));
}

function select(label, id, options, value, change) {
  const list = element("select", { id, onchange: (event) => change(event.target.value) },
    ...Object.entries(options).map(([key, text]) =>
      element("option", { value: key, selected: String(value) === key }, text)));
  return element("label", {}, `${label} `, list);
}

// 1 Attention -------------------------------------------------------------------------------------

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
    diagram(kind),
    element("p", {}, "Each token of the vocabulary has a learned vector, which goes into the first "
      + "layer. In each layer of the encoder, the tokens of the input look at each other and "
      + "at themselves (self-attention); then a small network transforms each of them alone "
      + "(feed-forward). A layer of the decoder does the same with the tokens that are already "
      + "written, and in between looks at the source: the vectors that the last layer of the "
      + "encoder has made of the input. Each layer reads what the one before it has made. From "
      + "the decoder's last vector, a softmax over the vocabulary gives the next token, which is "
      + "read at the next step. Left out of the picture: the positions that are added to the "
      + "tokens' vectors, residual connections, normalisation, and the matrix before the "
      + "softmax, which makes a number for each token of the vocabulary."),
    controls(),
    element("p", {}, "Each layer has several heads: attentions side by side, with weights of their "
      + "own. Below are two lines of tokens. Choose one of the lower line: the bars above show "
      + "where it looks; these "
      + `weights sum to 1${incomplete} (here they are rounded). Choose one of the upper line: the `
      + "bars below show which tokens look at it; these need not sum to 1."),
    ...(kind === "encoder" ? [] : [element("p", {}, "To choose the next token, the decoder uses "
      + "its vector at the last token that it has read. So a token of the lower line stands for "
      + "the step that writes it, but its weights are computed at the token before."
      + (kind === "decoder" ? " The last one that it may see is therefore the token at which it is "
        + "computed, which looks at itself." : ""))]),
    element("h3", {}, above), tokenLine(above, columns, true),
    element("h3", {}, below), tokenLine(below, rows, false),
    element("p", { class: "said" },
      element("span", { id: "said" }, `${saidOf(rows, columns)}.`), whoLooks()),
    element("p", { class: "note" }, `${titleOf(kind, layer, head)}.`));
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
    announce(document.getElementById("said").textContent);
  };
  const buttonOf = (name, i) => {
    const node = element("button", { type: "button", dir: "auto",
      id: `${isColumns ? "column" : "row"}-${i}`,
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

const idOfChosen = () => `${chosen.reverse ? "column" : "row"}-${chosen.row}`;

// Return a picture of the whole model, in which the chosen attention is marked.
function diagram(kind) {
  const box = (x, y, width, of, ...lines) => svg("g", { class: of === kind ? "part on" : "part" },
    svg("rect", { x, y, width, height: 40, rx: 4 }), ...lines.map((line, i) =>
      svg("text", { x: x + width / 2, y: y + (lines.length > 1 ? 17 : 25) + 15 * i }, line)));
  const frame = (y, width, name, n) => [
    svg("rect", { class: "stack", x: 70, y, width, height: 70, rx: 6 }),
    svg("text", { x: 80, y: y + 16, class: "start" }, `${name}: ${n} layer${n > 1 ? "s" : ""}`)];
  const arrow = (path) => svg("path", { class: "arrow", d: path, "marker-end": "url(#tip)" });
  const label = (x, y, ...lines) => lines.map((line, i) => svg("text", { x, y: y + 15 * i }, line));
  const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8,
    markerHeight: 8, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8Z" }));
  const encoder = [...label(30, 45, "input"), arrow("M52 49H78"),
    box(80, 28, 130, "encoder", "self-attention"), arrow("M210 48H228"),
    box(230, 28, 130, "", "feed-forward")];
  const decoder = [...label(30, 147, "already", "written"), arrow("M60 154H78"),
    box(80, 134, 130, "decoder", "self-attention,", "the future hidden"), arrow("M210 154H238"),
    box(240, 134, 150, "source", "attention to the", "encoder's output"), arrow("M390 154H428"),
    box(430, 134, 130, "", "feed-forward")];
  const memory = arrow("M360 48H390Q400 48 395 60L345 131"); // from the encoder to the decoder
  const output = [arrow("M570 154H598"), box(600, 134, 80, "", "softmax"), arrow("M680 154H700"),
    ...label(738, 150, "next", "token")];
  const again = arrow("M738 140V96H30V131"); // the next token is read at the next step
  return scrollBox("The model", svg("svg", { viewBox: "0 0 780 190", width: 780, height: 190,
    role: "img", class: "model", "aria-label": "The encoder reads the input, with self-attention "
      + "and feed-forward networks. The decoder reads what is already written with self-attention, "
      + "looks at the encoder's output, and a softmax gives the next token. Marked: "
      + `${NAMES[kind]}.` },
  tip, ...frame(4, 300, "Encoder", shown.weights.encoder.length),
  ...frame(110, 500, "Decoder", shown.weights.decoder.length),
  ...encoder, ...decoder, memory, ...output, again));
}

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

function controls() {
  const ofKind = shown.weights[chosen.kind];
  const layers = Object.fromEntries(ofKind.map((_, l) => [l, `layer ${l + 1}`]));
  const heads = Object.fromEntries([-1, ...ofKind[0].keys()].map((h) =>
    [` ${h}`, headName(h)])); // with a blank, as JavaScript would put whole numbers first
  const set = (name, id) => (value) => {
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

// 2 Heads -----------------------------------------------------------------------------------------

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
    element("p", {}, `The heads of the ${NAMES[kind]} (for the other two kinds, use the first list `
      + "of the view Attention). In each square, a row is a token that looks, a column one that is "
      + "looked at, and darker is more (by the square root, so that small weights can be seen). "
      + "Choose a square to see it large, and in the other views. Beside it:"),
    element("ul", {},
      element("li", {}, "what the head does, roughly and in this sentence only: where its rows "
        + `look (${PLACES[kind]}), with the part of their weight that goes there, `
        + "as a mean over rows; \u201cin part\u201d if that is less than 0.7. Where none of these "
        + "places fits: the greatest weight of a row, as a mean;"),
      element("li", {}, "the entropy of a row, as a mean, which tells how widely its weights are "
        + "spread: 0 bits if all are on one token, 1 bit if on two equally, 2 bits if on four;"),
      element("li", {}, "the head that is most like it, and how much: 1 if both have the "
        + "same weights, 0 if they have nothing in common (1 minus the Jensen-Shannon "
        + "divergence).")),
    moveWithArrows(grid), largeMap());
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
    element("details", {}, element("summary", {}, "The numbers as a table"),
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
    transform: `translate(${left + cell * (s + 0.6)} ${top - 6}) rotate(-50)` }, word(name))));
  rows.forEach((name, t) => {
    picture.append(svg("text", { x: left - 6, y: top + cell * (t + 0.65), "text-anchor": "end",
      fill: "#111" }, word(name)));
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

function button(text, click) {
  return element("button", { type: "button", onclick: click }, text);
}

function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  announce(`${name} saved`);
}

// Copy a text, or save it where a browser allows copying only to pages from a server; the button
// that was pressed tells which.
async function copy(text, pressed) {
  const label = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
    announce(pressed.textContent = "Copied");
  } catch {
    save("attention.tsv", "text/tab-separated-values", text);
    pressed.textContent = "Saved as attention.tsv";
  }
  setTimeout(() => { pressed.textContent = label; }, 3000);
}

// 3 Step by step ----------------------------------------------------------------------------------

let player = null; // the timer of Play

function showSteps(section) {
  const last = shown.target.length - 1, layer = shown.weights.source.length - 1;
  const cross = matrixOf("source", layer, -1);
  const slider = element("input", { type: "range", id: "step", min: 0, max: last,
    oninput: (event) => go(Number(event.target.value)) });
  const place = element("span"), body = element("div");
  const toPlay = button("Play", () => play(!player));
  const go = (step) => {
    const t = (chosen.step = Math.min(last, Math.max(0, step)));
    const now = `Step ${t + 1} of ${last + 1}`;
    place.textContent = `${now} `;
    slider.value = t;
    slider.setAttribute("aria-valuetext", `${now}: ${isolated(word(shown.target[t]))}`);
    body.replaceChildren(...stepOf(t, cross[t], layer));
  };
  const play = (begin) => {
    clearInterval(player);
    player = begin ? setInterval(() => {
      go(chosen.step + 1);
      if (chosen.step === last) play(false);
    }, 1000) : null;
    if (begin && chosen.step === last) go(0);
    toPlay.textContent = begin ? "Stop" : "Play";
  };
  const by = (distance) => () => {
    play(false);
    go(chosen.step + distance);
    announce(slider.getAttribute("aria-valuetext"));
  };
  section.append(
    element("p", {}, "The decoder writes one token after another. Move the slider, or press Play, "
      + "to follow it. In brackets: the token that is being written."),
    element("div", { class: "controls" }, element("label", {}, place, slider),
      button("Back", by(-1)), button("Forward", by(1)), toPlay), body);
  play(false);
  go(chosen.step);
}

// Return the elements that show step t. weights: of the attention to the source.
function stepOf(t, weights, layer) {
  const tokens = shown.steps[t].map(([token]) => token), likely = shown.steps[t].map(([, p]) => p);
  const others = Math.max(0, 1 - likely.reduce((sum, p) => sum + p, 0));
  const taken = t === shown.limit ? "None of them is taken: the text was cut off here, at its "
    + "greatest length, and the end mark was added."
    : tokens[0] === shown.target[t] ? "The first of them is taken."
    : "Another is taken: beam search compares several unfinished translations, not single steps.";
  const smoothed = isSmoothed && likely[0] > 0.9 ? " Even where the model is sure, something is "
    + "left for all others: it was trained with label smoothing, to give the right token a "
    + "little less than 100 %." : "";
  return [
    element("p", { class: "sofar", dir: directionOf(false), lang: data.languages[1] || null },
      ...alreadyRead().slice(0, t + 1).flatMap((token) => [element("bdi", {}, word(token)), " "]),
      element("b", {}, "[ ", element("bdi", {}, word(shown.target[t])), " ]")),
    element("div", { class: "columns" },
      element("div", {}, element("h3", {}, "The most likely next tokens"),
        bars([...tokens.map(word), "all others"], [...likely, others], percent),
        element("p", { class: "note" }, taken, smoothed)),
      element("div", {}, element("h3", {}, "Where the decoder looks in the input at this step"),
        bars(shown.source.map(word), weights),
        element("p", { class: "note" },
          `Always layer ${layer + 1}, the last, and the mean of its heads.`)))];
}

// 4 Beam ------------------------------------------------------------------------------------------

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
    element("p", {}, `Each column is a step, and shows the ${2 * width} most probable `
      + "continuations of the texts that were kept in the column before: twice as many as the beam "
      + `is wide, so that ${width} can go on where some end. The number is ln P, the logarithm `
      + "of the probability of the text so far. Choose a box to read its text."),
    element("ul", {},
      element("li", {}, "Solid frame: kept, and continued in the next column, if there is one."),
      element("li", {}, `Double frame: finished by the end mark, among the best ${width} of its `
        + "column."),
      element("li", {}, "Dashed frame: dropped.")),
    element("p", {}, `The search ends when ${width} or more texts are finished and none that is `
      + "kept could still get a better score than the best of them. The score is explained below: "
      + "ln P only falls, but a longer text is divided by a greater penalty, so the search reckons "
      + `with the greatest length that is allowed, ${shown.limit} tokens. The heavy line leads to `
      + "the winner."),
    tree,
    element("p", {}, "score = ln P / penalty, penalty = ((5 + length) / 6)",
      element("sup", {}, "alpha"), "; the length counts </s>. Each further token makes ln P "
        + "less, so without a penalty short texts would win. A greater alpha favours longer ones."),
    element("div", { class: "controls" }, element("label", {}, label, slider)),
    list);
  rank();
}

// Return the list of the finished translations, for the chosen alpha.
function listOfFinished(columns) {
  const finished = ranked(columns), lengths = new Set(finished.map(({ node }) => lengthOf(node)));
  if (!finished.length) return [element("p", { class: "note" }, "None of these texts ended before "
    + "the greatest length: the most probable one is taken.")];
  const rows = finished.map(({ node, penalty, score }) => element("tr", {},
    element("th", { scope: "row", dir: "auto", lang: data.languages[1] || null }, textOf(node)),
    ...[node.total.toFixed(3), lengthOf(node), penalty.toFixed(3), score.toFixed(3)].map(
      (number) => element("td", {}, String(number)))));
  const head = ["translation", "ln P", "length", "penalty", "score"].map((name) =>
    element("th", { scope: "col" }, name));
  return [
    element("p", { class: "note" }, "The finished translations, best first. "
      + `The search ran with alpha ${data.search.alpha}. Another alpha ranks what it finished `
      + "anew; a search with it could find others." + (lengths.size === 1
      ? " Here all have the same length, so alpha cannot change their order." : "")),
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

// Return a picture of the beam: a column of boxes for each step, and lines from a text to the texts
// that continue it.
function beamTree(columns, winner) {
  const across = 96, down = 38, path = new Set();
  for (let at = winner; at; at = at.parent) path.add(at);
  const rows = Math.max(...columns.map((nodes) => nodes.length));
  const picture = pictureOf(across * columns.length + 8, down * rows + 8, { role: "group",
    class: "tree", "aria-label": `The beam over ${columns.length} steps; the table below lists `
      + "what it found" });
  columns.forEach((nodes, c) => nodes.forEach((node, r) => {
    Object.assign(node, { x: 4 + across * c, y: 4 + down * r });
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
  const { x, y } = node, { width, height } = BOX, middle = x + width / 2, text = word(node.token);
  const told = `${isolated(textOf(node) || text)}: ln P ${node.total.toFixed(3)}, ${state}`;
  const tell = () => {
    document.getElementById("text-of-node").textContent = `${told}.`;
    for (const picked of document.querySelectorAll(".picked")) picked.classList.remove("picked");
    for (let at = node; at; at = at.parent) at.box.classList.add("picked");
  };
  const box = svg("g", { class: `node ${state}${isWon ? " won" : ""}`, role: "button",
    "aria-label": told, onclick: tell, onfocus: tell }, svg("title", {}, told),
  svg("rect", { x, y, width, height, rx: 4 }));
  if (node.finished)
    box.append(svg("rect", { x: x + 3, y: y + 3, width: width - 6, height: height - 6, rx: 2 }));
  box.append(
    svg("text", { x: middle, y: y + 15, "text-anchor": "middle" },
      fitted(text, width - 8, "12px system-ui, sans-serif")),
    svg("text", { x: middle, y: y + 27, "text-anchor": "middle", class: "small" },
      node.total.toFixed(2)));
  node.box = box;
  return box;
}

// 5 Masks -----------------------------------------------------------------------------------------

// The masks of a batch of two sentences: this one, and its beginning, padded to the same length.
function showMasks(section) {
  const half = (tokens) => Math.max(1, Math.ceil(tokens.length / 2));
  const shorten = (tokens) => [...tokens.slice(0, half(tokens) - 1), "</s>"];
  const pad = (tokens, length) => [...tokens, ...new Array(length - tokens.length).fill("<pad>")];
  const cut = (tokens) => (tokens.length > 14 ? [...tokens.slice(0, 13), "</s>"] : tokens);
  const source = cut(shown.source), target = cut(shown.target);
  const batch = [source, target].map((tokens) => [tokens, pad(shorten(tokens), tokens.length)]);
  section.append(
    element("p", {}, "A row is a token that looks, and may look at the columns of its solid cells. "
      + "Hatched cells are hidden by a mask: the scores from which the softmax makes their weights "
      + `become minus infinity${hasModel ? " (see One head by hand)" : ""}, and so the weights `
      + "0. A row of the decoder has the name of the token that is about to be written."),
    element("ul", {},
      element("li", {}, "The future: in training, the whole translation is known, and all rows of "
        + "the decoder are computed at once. Without a mask, a row could simply read the token "
        + "that it has to predict. While the model translates, the future does not exist yet; "
        + "this page then reads the finished translation again with the mask, which gives the "
        + "same weights."),
      element("li", {}, "Padding: several sentences are computed together, as a batch, because "
        + "that is faster. The shorter ones are filled up with <pad>, which nobody should look "
        + "at.")));
  const isWhole = !shown.isCut && source === shown.source && target === shown.target;
  const headings = [isWhole ? "This sentence" : "This sentence (its first tokens)",
    "A shorter sentence of the same batch (as an example, the beginning of this one)"];
  headings.forEach((heading, i) => section.append(element("h3", {}, heading),
    element("div", { class: "masks" }, ...masksOf(batch[0][i], batch[1][i], i > 0))));
  section.append(element("p", { class: "note" }, "Rows of <pad> are computed like the others, and "
    + "ignored. The decoder's own padding needs no mask: it comes last, so the mask of the future "
    + "hides it from all tokens of the sentence. Only the rows of <pad> see it."));
}

// Return the three masks of a sentence of the batch: the tokens that are read and written.
function masksOf(read, written, isPadded) {
  const padding = isPadded ? "hides padding" : "nothing to hide";
  return [
    mask(`encoder: ${padding}`, read, read, (t, s) => read[s] !== "<pad>"),
    mask("decoder: hides the future", written, ["<s>", ...shifted(written)],
      (t, s) => !isHidden("decoder", t, s)),
    mask(`decoder to source: ${padding}`, written, read, (t, s) => read[s] !== "<pad>"),
  ];
}

// Return what the decoder has read at each place after <s>: all but the last token, and for a
// padded line, all but its end mark.
function shifted(written) {
  const end = written.indexOf("</s>");
  return written.filter((_, t) => t !== (end < 0 ? written.length - 1 : end));
}

function mask(title, rows, columns, isVisible) {
  const cell = 14, left = 70, top = 62;
  const cells = rows.flatMap((_, t) => columns.map((_, s) => isVisible(t, s)));
  const hidden = cells.filter((visible) => !visible).length;
  const picture = pictureOf(left + cell * columns.length + 40, top + cell * rows.length + 4, {
    role: "img", class: "mask",
    "aria-label": `${title}: ${hidden} of ${cells.length} cells are hidden` });
  const short = (name) => fitted(word(name), left - 8, "10px system-ui, sans-serif");
  columns.forEach((name, s) => picture.append(svg("text", {
    transform: `translate(${left + cell * (s + 0.7)} ${top - 4}) rotate(-55)` }, short(name))));
  rows.forEach((name, t) => {
    picture.append(svg("text", { x: left - 4, y: top + cell * (t + 0.75), "text-anchor": "end" },
      short(name)));
    columns.forEach((_, s) => {
      const [x, y] = [left + cell * s, top + cell * t];
      picture.append(svg("rect", { x, y, width: cell - 1, height: cell - 1,
        class: isVisible(t, s) ? "visible" : "hidden" }));
      if (!isVisible(t, s)) picture.append(svg("path", { class: "hatch",
        d: `M${x} ${y + 13}L${x + 13} ${y}M${x} ${y + 6}L${x + 6} ${y}`
          + `M${x + 7} ${y + 13}L${x + 13} ${y + 7}` }));
    });
  });
  return element("figure", {}, element("figcaption", {}, title),
    scrollBox(title, picture));
}

// 6 Try it ----------------------------------------------------------------------------------------

const WATCHED = 30; // ms; so often the text that is being written is shown
let unpacking = null; // the promise of the model in this page
let busy = false;
let isSmoothed = false; // whether the model in this page was trained with label smoothing

function unpackModel() {
  unpacking ??= unpack(document.getElementById("weights").textContent).then((bytes) =>
    loadModel(JSON.parse(document.getElementById("head").textContent), bytes));
  return unpacking;
}

// Return the words that are read in pieces.
function inPieces() {
  const words = [], isUnspaced = new RegExp(`${UNSPACED}$`, "u");
  for (const [i, token] of shown.source.entries())
    if (i && continues(token) && !isUnspaced.test(shown.source[i - 1])) words.at(-1).push(token);
    else words.push([token]);
  return words.filter((pieces) => pieces.length > 1).map((pieces) => {
    const [blank, ...others] = pieces; // which may be a piece by itself
    const told = blank === "\u2581" ? [blank + others[0], ...others.slice(1)] : pieces;
    return `${word(pieces.join(""))}${told.length > 1 ? ` (${told.map(word).join(" ")})` : ""}`;
  });
}

// Translate a text in the page. onText: called with the text so far.
// Throws an Error with one line for the reader if there is nothing to translate, or too much.
async function translate(text, width, onText = () => {}) {
  const model = await unpackModel();
  const { alpha, max_extra: maxExtra, longest, usual, reads_capitals: loud } = data.search;
  const given = normalise(text), typed = loud ? given : inSmallLetters(model, given);
  const line = partOf(model, typed, usual);
  if (!line) throw new Error("Type a sentence first.");
  if (hasMoreThan(model, line, longest))
    throw new Error(`This is too long: the model reads up to ${longest} tokens at once, and a word `
      + "that it does not know has several. Type less.");
  const ids = encodeText(model, line);
  let watched = performance.now();
  const write = async (found) => {
    onText(decodeIds(model, found));
    await new Promise((resolve) => setTimeout(resolve)); // lets the browser draw
    watched = performance.now();
  };
  const onToken = (found) => performance.now() - watched > WATCHED && write(found);
  const best = width > 1 ? await beamSearch(model, ids, width, alpha, maxExtra, onToken)
    : await greedy(model, ids, alpha, maxExtra, onToken);
  await write(best.ids); // the views follow
  const eos = model.config.eos_id, source = [...ids, eos], target = [...best.ids, eos];
  const { weights, steps, inner } = explainPass(model, source, target);
  const names = (list) => list.map((id) => nameOf(model, id));
  const beam = best.beam.map((step) => ({ ...step, tokens: names(step.tokens) }));
  return { line, isPart: line !== typed, translation: decodeIds(model, best.ids),
    source: names(source), target: names(target), weights, steps, beam, width, inner,
    limit: Math.max(1, ids.length + maxExtra) };
}

// Translate a text, and show it in all views. Tells the reader why, where it cannot.
async function translateAndShow(text, width) {
  const output = document.getElementById("output"), note = document.getElementById("took");
  if (busy) {
    note.textContent = "The page is still translating: press again in a moment.";
    announce(note.textContent);
    return;
  }
  busy = true;
  try {
    const begun = performance.now();
    shown = await translate(text, width, (found) => { output.textContent = found; });
    const seconds = (performance.now() - begun) / 1000;
    Object.assign(chosen,
      { row: farthestLooking(), reverse: false, step: 0, alpha: data.search.alpha });
    output.textContent = shown.translation;
    updateHeader();
    updateAll();
    note.textContent = noteOn(seconds);
    announce(shown.translation, data.languages[1]);
  } catch (error) {
    output.textContent = "";
    note.textContent = `${error.message} The views still show the sentence before.`;
    announce(note.textContent);
  } finally {
    busy = false;
  }
}

// Return what is said about a translation that the page made.
function noteOn(seconds) {
  const pieces = inPieces();
  return `${shown.target.length} output tokens with the end mark, ${seconds.toFixed(2)} s.`
    + (shown.isPart ? " Of several sentences, the page translates the first." : "")
    + (pieces.length ? " Read in pieces, as words are that the model has seen rarely or never: "
      + `${pieces.map(isolated).join(", ")}. So the translation may well be wrong.` : "")
    + (shown.source.some((token) => BYTE.test(token)) ? " Characters that it does not know are "
      + "read as bytes, such as <0xE6>; \u2423 is a blank before one." : "");
}

// Put the sentence and its translation at the top of the page; what was said about the stored one
// goes.
function updateHeader() {
  document.getElementById("line").textContent = shown.line;
  document.getElementById("translation").textContent = shown.translation;
  document.getElementById("about").textContent = "";
  document.title = `${shown.line} \u2192 ${shown.translation}`;
}

// Return the English name of a language's code, such as "en"; a text that is no code stays as it
// is.
function languageName(code) {
  try {
    return code && new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

function showTry(section) {
  const field = element("input", { type: "text", id: "field", value: shown.line, dir: "auto",
    lang: data.languages[0] || null, autocomplete: "off", spellcheck: "false" });
  const language = languageName(data.languages[0]);
  const widths = [data.search.width, data.search.width > 1 ? 1 : 4], widest = Math.max(...widths);
  const width = element("select", { id: "width" }, ...widths.map((each) =>
    element("option", { value: each }, each > 1 ? `beam ${each}` : "greedy")));
  const submit = (event) => {
    event.preventDefault();
    translateAndShow(field.value, Number(width.value));
  };
  section.append(
    element("p", {}, `Type a sentence${language ? ` in ${language}` : ""}: the model in this page `
      + `translates it, and all views show it. ${data.hint}`),
    ...(data.examples.length ? [element("div", { class: "controls", role: "group",
      "aria-label": "Examples" }, ...data.examples.map((line) => button(line, () => {
      field.value = line;
      translateAndShow(line, Number(width.value));
    })))] : []),
    element("form", { class: "controls", onsubmit: submit },
      element("label", { class: "wide" }, "Sentence ", field),
      element("label", {}, "Search ", width),
      element("button", { type: "submit" }, "Translate")),
    element("p", { class: "note" }, "Greedy search takes the most likely next token at each step; "
      + `a beam of ${widest} keeps the ${widest} best unfinished translations.`),
    element("p", { id: "output", class: "sofar", dir: "auto", lang: data.languages[1] || null },
      shown.translation),
    element("p", { id: "took", class: "note" }));
}

// 7 One head by hand ------------------------------------------------------------------------------

const N_SHOWN = 6; // numbers of each vector that are shown at first

function showByHand(section) {
  if (!shown.inner) { // a long translation, of which Python stored the first tokens
    section.append(element("p", {}, "Press the button: the model in this page translates the "
      + "sentence again, and shows the queries, keys and values of one head."),
    button("Show the numbers of one head", () => translateAndShow(shown.line, data.search.width)));
    return;
  }
  const hand = byHand(), K = hand.query.length, shortened = K > N_SHOWN && !chosen.every;
  const few = (vector) => vector.slice(0, shortened ? N_SHOWN : K)
    .map((number) => number.toFixed(2)).join(" ") + (shortened ? " \u2026" : "");
  const toggle = button(shortened ? `Show all ${K} numbers` : `Show ${N_SHOWN} numbers`, () => {
    chosen.every = shortened;
    update(showByHand, "every-number");
  });
  toggle.id = "every-number";
  section.append(
    ...aboutHand(hand.head, hand.t, K),
    ...(K > N_SHOWN ? [toggle] : []),
    element("p", { class: "numbers" }, `q = ${few(hand.query)}`),
    scrollBox("One head by hand", handTable(hand, few)),
    element("p", { class: "numbers" }, `sum of softmax \u00d7 v = ${few(hand.sum)}`));
}

// Return what a head computes for row t, softmax(q K^T / sqrt(d_k)) V, and what of.
function byHand() {
  const { kind, layer } = chosen, head = Math.max(0, chosen.head), K = shown.inner.d_k;
  const ofHead = shown.weights[kind][layer][head];
  // Of a token that is looked at: the token that looks most at it.
  const t = chosen.reverse ? greatest(ofHead.map((row) => row[chosen.row]), 1)[0] : chosen.row;
  const part = (vector) => Array.from(vector.slice(head * K, (head + 1) * K));
  const inner = shown.inner[kind][layer], query = part(inner.queries[t]);
  const keys = inner.keys.map(part), values = inner.values.map(part);
  const hidden = keys.map((_, s) => isHidden(kind, t, s));
  const products = keys.map((key) => dot(query, key)), weights = ofHead[t];
  const sum = query.map((_, i) =>
    values.reduce((total, value, s) => total + (hidden[s] ? 0 : weights[s] * value[i]), 0));
  return { head, t, query, keys, values, products, hidden, weights, sum };
}

// Return paragraphs: of which head and token the numbers are, and how they are computed.
function aboutHand(head, t, K) {
  const D = shown.inner.d_model, d_k = () => ["d", element("sub", {}, "k")];
  const { kind, layer } = chosen, [rows] = namesOf(kind), isEncoder = kind === "encoder";
  const whose = isEncoder ? [] : [" (computed at the token before it, ",
    element("b", { dir: "auto" }, `\u201c${word(alreadyRead()[t])}\u201d`), ")"];
  const most = chosen.reverse ? " A token that is looked at is chosen there: of those that look at "
    + "it, this one does most." : "";
  const seen = kind === "source" ? "from the encoder's output for a token of the input"
    : "from the vector of a token that is looked at";
  return [
    element("p", {}, `What head ${head + 1} of layer ${layer + 1} computes for `,
      element("b", { dir: "auto" }, `\u201c${word(rows[t])}\u201d`), ...whose, ". Choose "
      + "attention, layer, head and token in the view Attention"
      + `${chosen.head < 0 ? ", which now shows the mean of all heads" : ""}.${most}`),
    element("p", {}, "Each token has a vector in each layer. Each head has three learned matrices, "
      + `which turn such vectors of ${D} numbers into shorter ones, of ${K}: the query q, what `
      + "the looking token asks for, from its own vector; the key k, what can be found at a "
      + `token, and the value v, what it passes on, both ${seen}.`),
    element("p", {}, "The typical size of q \u00b7 k, a sum of ", ...d_k(), " products, grows with "
      + "\u221a", ...d_k(), ". Undivided, it would make the softmax nearly all or nothing, so the "
      + "score is q \u00b7 k / \u221a", ...d_k(), "; here ", ...d_k(),
      ` is ${K}. A mask hides what may not be seen, the softmax makes `
      + "weights of the other scores, and the head's result is the sum of the values times these "
      + "weights. The results of all heads are put one after another into one vector, and a "
      + "further matrix of the layer mixes them.")];
}

// Return the table with a row for each token that is looked at. few: shortens a vector to a text.
function handTable({ query, keys, values, products, hidden, weights }, few) {
  const [, columns] = namesOf(chosen.kind), K = query.length;
  const score = `score = q \u00b7 k / \u221a${K}`;
  const headings = ["token", "q \u00b7 k", score, "mask", "softmax", "k", "v"];
  return element("table", { class: "numbers" },
    element("tr", {}, ...headings.map((name) => element("th", { scope: "col" }, name))),
    ...columns.map((name, s) => element("tr", { class: hidden[s] ? "off" : null },
      element("th", { scope: "row", dir: "auto" }, word(name)),
      ...[products[s].toFixed(2), (products[s] / Math.sqrt(K)).toFixed(2),
        hidden[s] ? "\u2212\u221e" : "may look", weights[s].toFixed(3), few(keys[s]),
        few(values[s])].map(
        (text) => element("td", {}, text)))));
}

function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}

// The page ----------------------------------------------------------------------------------------

const VIEWS = [
  ...(hasModel ? [["try", "Try it", showTry]] : []),
  ["attention", "Attention", showAttention], ["heads", "Heads", showHeads],
  ["steps", "Step by step", showSteps], ["beam", "Beam", showBeam], ["masks", "Masks", showMasks],
  ...(hasModel ? [["hand", "One head by hand", showByHand]] : []),
];

// Fill a view again, and give the focus back to the element that had it.
function update(show, focus) {
  const [id, title] = VIEWS.find((view) => view[2] === show);
  const section = document.getElementById(id);
  const scrolled = [...section.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  const isOpen = section.querySelector("details")?.open;
  section.replaceChildren(element("h2", { id: `${id}-title`, tabindex: -1 }, title));
  show(section);
  if (isOpen) section.querySelector("details").open = true;
  markScrolling();
  section.querySelectorAll(".scroll").forEach((box, i) => { box.scrollLeft = scrolled[i] ?? 0; });
  if (focus) document.getElementById(focus)?.focus();
}

// Fill the views that depend on the chosen attention, layer, head and token.
function updateChosen(focus) {
  update(showAttention);
  update(showHeads);
  if (hasModel) update(showByHand);
  document.getElementById(focus).focus();
}

// Fill the views of a new translation: all but the one in which it was typed. What had the focus
// keeps it, or if it was a token, the chosen one gets it, or if it is gone, the title of its view.
function updateAll() {
  const focused = document.activeElement, section = focused?.closest("section");
  for (const [, , show] of VIEWS) if (show !== showTry) update(show);
  if (!section || section.id === "try") return;
  const id = focused.closest(".words") ? idOfChosen() : focused.id;
  (document.getElementById(id) ?? document.getElementById(`${section.id}-title`)).focus();
}

async function build() {
  shown = await storedTranslation();
  Object.assign(chosen, { layer: shown.weights.source.length - 1, row: farthestLooking() });
  const main = document.getElementById("main");
  main.before(element("nav", { "aria-label": "Views" }, ...VIEWS.map(([id, title]) =>
    element("a", { href: `#${id}` }, title))));
  for (const [id] of VIEWS)
    main.append(element("section", { id, "aria-labelledby": `${id}-title` }));
  for (const [, , show] of VIEWS) update(show);
  addEventListener("resize", markScrolling);
  // The model is unpacked before it is needed, but after the views are drawn.
  if (hasModel) setTimeout(refine);
}

// Replace the stored weights, which are rounded, by those that the model computes, unless the
// reader already translates, or only the first tokens are stored.
async function refine() {
  const stored = shown, note = document.getElementById("about"), about = note.textContent;
  if (!stored.isCut) note.append(" Weights are rounded until the page has computed them.");
  const model = await unpackModel();
  isSmoothed = model.config.label_smoothing > 0;
  if (busy || shown !== stored || stored.isCut) return;
  shown = { ...stored, ...explainPass(model, ...data.ids), twins: null };
  note.textContent = about;
  updateAll();
}

// The page's own test, for headless browsers: open it with #selftest. -----------------------------

async function selfTest() {
  let count = 0;
  const check = (holds, what) => { if (!holds) throw new Error(what); count++; };
  const at = (id) => document.getElementById(id);
  const press = (key) => document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true }));
  const sumsTo1 = (row) => {
    const more = row.reduce((a, b) => a + b) - 1;
    return more < 0.003 * row.length && (shown.isCut || more > -0.003 * row.length);
  };
  try {
    check(Object.values(shown.weights).flat(3).every(sumsTo1),
      "each row of weights sums to 1, or to less where its end is not shown");
    for (const [id] of VIEWS) check(at(id).children.length > 1, `view ${id} is empty`);
    at("row-0").focus();
    press("ArrowRight");
    check(document.activeElement.id === "row-1" && chosen.row === 1,
      "the arrow chooses the next token");
    check(/attends to/.test(at("live").textContent), "the live line speaks");
    at("column-0").click();
    check(document.activeElement.id === "column-0" && chosen.reverse,
      "a token of the input is chosen");
    check(/is looked at by/.test(at("live").textContent), "the live line says who looks");
    at("layer").focus();
    at("layer").value = 0;
    at("layer").dispatchEvent(new Event("change"));
    check(document.activeElement.id === "layer" && chosen.layer === 0,
      "a chosen layer keeps the focus");
    at("head-0-0").focus();
    press("End");
    check(document.activeElement.classList.contains("head"), "End moves to the last head");
    document.activeElement.click();
    check(chosen.head === shown.weights.source[0].length - 1, "a head is chosen");
    for (const [id, value] of [["step", 1], ["alpha", 1.5]]) {
      const slider = at(id);
      if (!slider) continue; // greedy decoding has no alpha
      slider.focus();
      slider.value = value;
      slider.dispatchEvent(new Event("input"));
      check(chosen[id] === value && document.activeElement === slider,
        `the slider of ${id} moves`);
    }
    check(document.documentElement.scrollWidth <= innerWidth,
      "the page is as wide as the window");
    if (shown.beam.length) check(document.querySelector(".node.won"), "the beam has a winner");
    if (hasModel) await checkModel(check);
    const controls = [...document.querySelectorAll("button, select, input, svg[role=img]")];
    check(controls.every((node) => node.getAttribute("aria-label") || (node.tagName === "BUTTON"
      ? node.textContent.trim() : node.labels?.length)), "each control has a name");
    return `ok ${count}`;
  } catch (error) {
    return `failed: ${error.message}`;
  }
}

// Compare what the model in the page computes with the numbers of Python.
async function checkModel(check) {
  const stored = await storedTranslation();
  await translateAndShow(stored.line, data.search.width);
  check(shown.inner && shown.translation === stored.translation,
    "the page translates as Python does");
  for (const kind of Object.keys(KINDS)) {
    const [here, there] = [shown, stored].map((each) => each.weights[kind].flat());
    const far = Math.max(...there.flatMap((matrix, m) => matrix.flatMap((row, t) =>
      row.map((weight, s) => Math.abs(weight - here[m][t][s])))));
    check(far < 1 / 255 + 1e-3, `${kind} attention is Python's (${far})`);
    // The numbers of one head by hand, for the last row, from which no mask hides anything.
    const { queries, keys } = shown.inner[kind][0], K = shown.inner.d_k;
    const part = (vector) => vector.slice(0, K);
    const scores = keys.map((key) => dot(part(queries.at(-1)), part(key)) / Math.sqrt(K));
    check(softmax(scores).every((weight, s) => Math.abs(weight - here[0].at(-1)[s]) < 1e-5),
      `the ${kind} attention is that of its queries and keys`);
  }
  check(document.querySelector("#hand table") !== null, "one head is computed by hand");
  for (const odd of ["", " \t ", "word ".repeat(300), "x".repeat(1e6)]) {
    const before = shown;
    await translateAndShow(odd, 1);
    const said = document.getElementById("took").textContent;
    check(shown === before && /Type /.test(said), `one line tells what is wrong: ${said}`);
  }
}

// Return what "Save SVG", "Save PNG" and "Save numbers" write for the map that is shown.
async function exported() {
  const { kind, layer, head } = chosen, picture = document.querySelector("svg[data-map]");
  const png = new Uint8Array(await (await pngOf(picture)).arrayBuffer());
  const characters = Array.from(png, (byte) => String.fromCharCode(byte)).join("");
  return { kind, layer, head, svg: svgText(picture), png: btoa(characters),
    tsv: tsvOf(...namesOf(kind), matrixOf(kind, layer, head)) };
}

build().catch((error) => {
  document.getElementById("main").textContent =
    `This page needs a browser of 2023 or newer (${error.message}).`;
}).then(async () => {
  if (location.hash !== "#selftest") return;
  const before = JSON.stringify(await exported());
  const result = await selfTest();
  document.body.append(element("pre", { id: "exported" }, before),
    element("pre", { id: "selftest" }, result));
});
