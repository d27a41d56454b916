// The stage: a diagram of the model through which the sentence flows.
//
// Input on the left, encoder, decoder, output on the right: information goes from the left and from
// the right to the word that is being written, then down to the likely next words.
//
// Time runs in moments: from 0 to 1 the first, from 1 to 2 the second. `paint` draws any time, so
// playing, stepping and dragging are the same, and a whole number is a still.
"use strict";

const stage = { time: 0, moments: [], lit: null, scene: null, frame: 0, isPlaying: false,
  hasMoved: false, speed: 1 };
const isStill = matchMedia("(prefers-reduced-motion: reduce)");
const clamp = (x, low = 0, high = 1) => Math.min(high, Math.max(low, x));

// The scene ---------------------------------------------------------------------------------------

// Return where everything is in a picture of this size.
function geometryOf(width, height) {
  const S = shown.source.length, rows = Math.max(S, shown.target.length + 1);
  const isNarrow = width < 480;
  const top = isNarrow ? 81 : 73, bottom = isNarrow ? 282 : 164;
  const pitch = clamp((height - top - bottom - 18) / rows, isNarrow ? 14 : 11, isNarrow ? 22 : 40);
  const largest = isNarrow ? 11 : width < 640 ? 12.5 : width < 900 ? 13.5 : 16;
  const font = Math.min(largest, Math.max(10, pitch * 0.85));
  const room = (names) => 6 + Math.min(width * (isNarrow ? 0.19 : 0.17),
    Math.max(...names.map((name) => widthOf(word(name), `600 ${font}px system-ui, sans-serif`))));
  const [left, right] = [room(shown.source), room(["<s>", ...shown.target])];
  const strip = isNarrow ? 16 : width < 900 ? 32 : 40, gap = isNarrow ? 3 : width < 900 ? 7 : 12;
  const network = isNarrow ? 14 : width < 900 ? 40 : 60;
  const free = width - left - right - 4 * strip - 9 * gap - network;
  const x = { words: left };
  x.embedding = left + gap;
  x.encoder = x.embedding + strip + gap;
  x.network = x.encoder + free * 0.34 + gap;
  x.memory = x.network + network + gap;
  x.source = x.memory + strip + gap;
  x.made = x.source + free * 0.36 + gap;
  x.decoder = x.made + strip + gap;
  x.read = x.decoder + free * 0.3 + gap;
  x.output = x.read + strip + gap;
  const end = top + rows * pitch;
  return { width, height: end + bottom + 6, isNarrow, font, strip, gap, network, top, pitch, end, x,
    free, below: end + 14, y: (row) => top + pitch * (row + 0.5) };
}

// Return an element of SVG that can be pressed like a button.
function pressable(attributes, action, ...children) {
  return svg("g", { role: "button", tabindex: 0, ...attributes, onclick: action,
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      action();
    } }, ...children);
}

// Return the lines of a label that fit into `room`; it breaks at spaces and after hyphens.
function broken(text, room, font) {
  const lines = [];
  for (const part of text.split(/(?<= )|(?<=-)/)) {
    const whole = (lines.at(-1) ?? "") + part;
    if (lines.length && widthOf(whole.trim(), font) <= room) lines[lines.length - 1] = whole;
    else lines.push(part);
  }
  return lines; // with their spaces, as a screen reader puts them together
}

// Return a part of the model: a box that opens a view. label: what is written above it; title: what
// it is called.
function partOfModel(g, name, view, label, title, x, width, y = g.top - 2,
  height = g.end - g.top + 4) {
  const largest = g.isNarrow ? 9.5 : g.width < 900 ? 11.5 : 13, room = width + g.gap - 4;
  const font = `700 ${largest}px system-ui, sans-serif`; // as it is while the part works
  const lines = broken(label, room, font);
  const widest = Math.max(room, ...lines.map((line) => widthOf(line.trim(), font)));
  const size = (largest * room) / widest; // a label stays inside the frame of its stack
  const isOpen = chosen.view === view && (!KINDS[name] || chosen.kind === name);
  const yOf = (i) => y - (g.isNarrow ? 18 : 21) - (lines.length - 1 - i) * (size + 1);
  return pressable({ class: `part ${name}${isOpen ? " open" : ""}`, "data-part": name,
    "aria-label": `${title}: open the view` }, () => openPart(name, view),
  svg("title", {}, title),
  svg("rect", { x, y, width, height, rx: 5 }),
  ...lines.map((line, i) => svg("text", { x: x + width / 2, "font-size": size,
    "text-anchor": "middle", y: yOf(i) }, line)));
}

// Return the number that tells when a part comes in the order of the model, on its frame.
function orderOf(g, part, x, y = g.top - 9) {
  const size = g.isNarrow ? 7 : 8.5;
  return svg("g", { class: "order", "data-part": part, "aria-hidden": "true" },
    svg("circle", { cx: x, cy: y, r: size }),
    svg("text", { x, y: y + size * 0.45, "font-size": size * 1.35, "text-anchor": "middle" },
      String(NUMBERS[part])));
}

// Open the view of a part, and if it is an attention, choose that.
function openPart(name, view) {
  const from = selectorOf(document.activeElement); // the box itself, which is built anew
  chooseShown();
  if (KINDS[name]) chooseKind(name);
  openView(view);
  opener = from;
}

// Return a frame around the layers of encoder or decoder.
function stackOf(g, name, does, n, from, to) {
  const size = g.isNarrow ? 11 : 14;
  return svg("g", { class: "stack" },
    svg("rect", { x: from, y: 2, width: to - from, height: g.end + 6, rx: 8 }),
    svg("text", { x: (from + to) / 2, y: 6 + size, "font-size": size, "text-anchor": "middle" },
      firstFitting([`${name} ${does} (${n} layer${n > 1 ? "s" : ""})`, `${name} ${does}`,
        `${name} \u00d7${n}`], to - from - 12, `600 ${size}px system-ui, sans-serif`)));
}

// Return a token of the input (key s0, s1 ...) or output (t0 ...), which can be chosen.
function tokenOf(g, key, token, x, row, anchor) {
  const room = anchor === "end" ? g.x.words : g.width - g.x.output;
  const name = fitted(word(token), room - 2, `600 ${g.font}px system-ui, sans-serif`);
  const height = Math.min(g.pitch - 2, g.font * 1.7);
  return pressable({ class: "token", "data-token": key, "aria-label": word(token) },
    () => chooseToken(key), svg("title", {}, word(token)),
    svg("rect", { x: anchor === "end" ? 0 : x - 2, y: g.y(row) - height / 2, width: room - 1,
      height, rx: 4 }),
    svg("text", { x, y: g.y(row) + g.font * 0.35, "font-size": g.font, "text-anchor": anchor },
      name));
}

const NUMBERS_OF_STRIP = 8; // at every width, so that a vector looks the same with a view open

// Return the strip of a vector: a square for each of some numbers, filled by `fillStrip`, and a
// frame.
function stripOf(g, key, x, row) {
  const n = NUMBERS_OF_STRIP, side = g.strip / n;
  const height = Math.min(g.pitch - 3, g.isNarrow ? 12 : 20);
  const rect = (left, width, name) =>
    svg("rect", { x: left, y: g.y(row) - height / 2, width, height, class: name });
  return svg("g", { class: "strip", "data-token": key },
    ...Array.from({ length: n }, (_, i) => rect(x + i * side, side, null)),
    rect(x, g.strip, "frame"));
}

const SIGNED = [[140, 67, 6], [224, 138, 60], [255, 255, 255], [95, 155, 209], [8, 64, 127]];

// Return the colour of a number, from brown (-2) over white (0) to blue (2): as in the lessons.
function signedColour(number) {
  const place = clamp((number + 2) / 4) * 4, from = Math.min(3, Math.floor(place));
  return `rgb(${SIGNED[from].map((c, i) =>
    Math.round(c + (SIGNED[from + 1][i] - c) * (place - from)))})`;
}

// Show a vector, or some numbers of it, in a strip.
function fillStrip(strip, vector, opacity) {
  setStyle(strip, "opacity", opacity);
  if (strip.vector === vector) return;
  strip.vector = vector;
  const cells = [...strip.childNodes].slice(0, NUMBERS_OF_STRIP);
  cells.forEach((cell, i) => setStyle(cell, "fill",
    signedColour(vector[Math.floor((i * vector.length) / cells.length)])));
}

function setStyle(node, name, value) {
  const text = typeof value === "number" ? String(Math.round(value * 1000) / 1000) : value;
  node.kept ??= {};
  if (node.kept[name] === text) return;
  node.kept[name] = node.style[name] = text;
}

// Return the lines of an attention, from what is looked at to what looks.
function linesOf(g, kind, layer, matrix) {
  const [from, to, rowOf, columnOf] = {
    encoder: [g.x.embedding + g.strip, g.x.network, (t) => t, (s) => s],
    source: [g.x.memory + g.strip, g.x.made, (t) => t + 1, (s) => s],
    decoder: [g.x.read, g.x.made + g.strip, (t) => t + 1, (s) => s],
  }[kind];
  const [keyOfRow, keyOfColumn] = {
    encoder: [(t) => `s${t}`, (s) => `s${s}`], source: [(t) => `t${t}`, (s) => `s${s}`],
    decoder: [(t) => `t${t}`, (s) => (s ? `t${s - 1}` : "start")],
  }[kind];
  const middle = (from + to) / 2;
  return matrix.flatMap((row, t) => row.flatMap((weight, s) => {
    if (weight < 0.03 || isHidden(kind, t, s)) return [];
    const [y0, y1] = [g.y(columnOf(s)), g.y(rowOf(t))];
    const line = svg("path", { class: `flow ${kind}`, pathLength: 1,
      d: `M${from} ${y0}C${middle} ${y0} ${middle} ${y1} ${to} ${y1}`,
      "stroke-width": (g.isNarrow ? 0.6 : 1) + (g.isNarrow ? 2.4 : 4.5) * weight });
    return [{ line, kind, layer, t, s, weight, rows: matrix.length,
      keys: [keyOfRow(t), keyOfColumn(s)] }];
  }));
}

const LISTED = 4; // likely words; the last bar is that of all others

// Return the bars of the next words, under the decoder.
function nextWordsOf(g) {
  const from = g.isNarrow ? 0 : g.x.source - 4, to = g.width, y = g.below;
  const name = Math.min(150, (to - from) * 0.36), room = to - from - name - 88;
  const rows = Array.from({ length: LISTED + 1 }, (_, i) => {
    const at = y + 52 + 18 * i;
    return { at,
      name: svg("text", { x: from + name, y: at + 12, "text-anchor": "end", "font-size": 13 }),
      bar: svg("rect", { x: from + name + 8, y: at + 2, height: 12, class: "next-bar" }),
      number: svg("text", { x: to - 24, y: at + 12, "text-anchor": "end", "font-size": 12 }) };
  });
  const group = svg("g", {},
    partOfModel(g, "feed", "network", "", "Feed-forward network of the decoder", from, to - from,
      y, 20),
    svg("text", { x: (from + to) / 2, y: y + 14, "font-size": 12, "text-anchor": "middle",
      class: "quiet" }, "feed-forward"),
    partOfModel(g, "next", "steps", "", "Softmax: the next word", from, to - from, y + 28, 118),
    orderOf(g, "next", from + 15, y + 41),
    svg("text", { x: from + 28, y: y + 45, "font-size": 13, class: "quiet" },
      fitted("softmax: how likely is each next word?", to - from - 36,
        "13px system-ui, sans-serif")),
    ...rows.flatMap((row) => [row.name, row.bar, row.number]));
  return { group, rows, from, to, name, room };
}

// Return the list of the beginnings that the beam keeps, under the encoder.
function beamOf(g) {
  const from = 0, to = g.isNarrow ? g.width : g.x.source - 26;
  const y = g.isNarrow ? g.below + 154 : g.below, n = clamp(shown.width, 1, g.isNarrow ? 4 : 6);
  const [pitch, height] = g.isNarrow ? [17, 122] : [20, 146];
  const rows = Array.from({ length: n }, (_, i) => {
    const at = y + 26 + pitch * i;
    return { bar: svg("rect", { x: from + 6, y: at, height: pitch - 3, rx: 3, class: "beam-bar" }),
      text: svg("text", { x: from + 12, y: at + 12.5, "font-size": g.isNarrow ? 12 : 13 }) };
  });
  const titles = shown.beam.length ? [`beam: ${shown.width} versions, in case the likeliest word `
    + "misleads", `beam: the ${shown.width} best versions`]
    : [shown.temperature ? "no beam: each word is drawn by lot"
      : "no beam: the likeliest word is taken"];
  const group = svg("g", {},
    partOfModel(g, "beam", "beam", "", "Beam search", from, to - from, y, height),
    svg("text", { x: from + 10, y: y + 17, "font-size": 13, class: "quiet" },
      firstFitting(titles, to - from - 12, "13px system-ui, sans-serif")),
    ...rows.flatMap(({ bar, text }) => [bar, text]),
    ...(canShowTurn() ? [linkToTurn(g, from + 10, y + height - 8, to - from - 20)] : []));
  return { group, rows, room: to - from - 20, columns: beamNodes(shown.beam) };
}

// Return whether the page knows a sentence that shows what a beam is for, and shows another.
const canShowTurn = () => hasModel && Boolean(data.turning) && shown.line !== data.turning;

function linkToTurn(g, x, y, room) {
  const text = fitted("\u25b8 watch the beam rescue a sentence", room,
    `${g.isNarrow ? 12 : 13}px system-ui, sans-serif`);
  // No address names it: the browser would scroll to it, and a page around this one, too.
  return pressable({ class: "link", id: "rescue",
    "aria-label": "Watch the beam rescue a sentence" }, () => showTurn(),
  svg("rect", { x: x - 4, y: y - 17, width: room + 8, height: 23, rx: 3 }),
  svg("text", { x, y, "font-size": g.isNarrow ? 12 : 13 }, text));
}

// Translate a sentence that the beam saves, and play from just before it does to its end, or show
// that moment.
async function showTurn(isPlayed = !isStill.matches) {
  const field = document.getElementById("field");
  field.value = data.turning;
  pause();
  await translateAndShow(data.turning, data.search.width);
  const { turn } = storyOfBeam();
  if (turn < 0) return;
  goTo(placeOf(isPlayed ? "source" : "drop", turn) + (isPlayed ? 0 : 1));
  if (!isPlayed) return;
  stage.scene.beam.group.scrollIntoView({ block: "nearest" });
  play();
}

// Build the picture for the translation that is shown, and paint it.
function buildStage() {
  const room = document.getElementById("scene");
  if (!room || room.clientWidth < 50) return;
  stage.moments = momentsOf(shown);
  paintLegend();
  stage.time = clamp(stage.time, 0, stage.moments.length);
  const available = innerHeight - room.getBoundingClientRect().top - scrollY - 8;
  const g = geometryOf(room.clientWidth, Math.max(400, available)), { x } = g;
  const encoderLines = shown.weights.encoder.flatMap((_, l) =>
    linesOf(g, "encoder", l, lookingOf("encoder", l)));
  const lines = [...encoderLines, ...linesOf(g, "source", 0, lookingOf("source")),
    ...linesOf(g, "decoder", 0, lookingOf("decoder"))];
  const strips = {
    embedding: shown.source.map((_, s) => stripOf(g, `s${s}`, x.embedding, s)),
    memory: shown.source.map((_, s) => stripOf(g, `s${s}`, x.memory, s)),
    made: shown.target.map((_, t) => stripOf(g, `t${t}`, x.made, t + 1)),
    read: ["start", ...shown.target.slice(0, -1).map((_, t) => `t${t}`)].map((key, t) =>
      stripOf(g, key, x.read, t)),
  };
  const words = shown.source.map((token, s) => tokenOf(g, `s${s}`, token, x.words - 4, s, "end"));
  words.forEach((node, s) => node.classList.toggle("gone", hasModel && tried.hidden.has(s)));
  const written = shown.target.map((token, t) =>
    tokenOf(g, `t${t}`, token, x.output, t + 1, "start"));
  const start = svg("g", { class: "token", "data-token": "start" }, svg("text", { x: x.output,
    y: g.y(0) + g.font * 0.35, "font-size": g.font }, "<s>"));
  const slot = svg("rect", { class: "slot", x: x.output - 2, width: g.width - x.output,
    height: Math.min(g.pitch - 2, g.font * 1.7), rx: 4 });
  const flying = svg("text", { class: "flying", "font-size": g.font });
  const down = svg("path", { class: "down", pathLength: 1 });
  const up = svg("g", { class: "up", "aria-hidden": "true" }, svg("path", {}), svg("path", {}));
  const shares = shown.source.concat(shown.target, "").map(() =>
    svg("text", { class: "share", "font-size": g.isNarrow ? 9 : 12 }));
  const next = nextWordsOf(g), beam = beamOf(g);
  const zone = { encoder: x.network - g.gap - x.encoder, source: x.made - g.gap - x.source,
    decoder: x.read - g.gap - x.decoder };
  const inputs = svg("g", { role: "group", "aria-label": "Tokens of the input",
    lang: data.languages[0] || null }, ...words);
  const outputs = svg("g", { role: "group", "aria-label": "Tokens of the output",
    lang: data.languages[1] || null }, start, ...written);
  const picture = pictureOf(g.width, g.height, { class: "model", role: "group",
    "aria-label": "The model: boxes open their views, tokens can be chosen" });
  picture.append(
    stackOf(g, "Encoder", "reads the input", shown.weights.encoder.length,
      x.encoder - g.gap / 2 - 1, x.memory - g.gap / 2),
    stackOf(g, "Decoder", "writes the translation", shown.weights.decoder.length,
      x.source - g.gap / 2 - 1, x.read - g.gap / 2),
    partOfModel(g, "words", "words", "input", "Input", 0, x.words),
    inputs,
    partOfModel(g, "vectors", "vectors", g.isNarrow ? "" : "vectors", "Vectors",
      x.embedding - 2, g.strip + 4),
    orderOf(g, "tokens", x.words / 2), orderOf(g, "vectors", x.embedding + g.strip / 2),
    partOfModel(g, "encoder", "attention", "self-attention", "Self-attention of the encoder",
      x.encoder, zone.encoder),
    orderOf(g, "encoder", x.encoder + zone.encoder / 2),
    partOfModel(g, "network", "network", g.isNarrow ? "" : "feed-forward",
      "Feed-forward network of the encoder", x.network, g.network),
    orderOf(g, "network", x.network + g.network / 2),
    partOfModel(g, "source", "attention", "attention to the input",
      "Attention to the input, of the decoder", x.source, zone.source),
    orderOf(g, "source", x.source + zone.source / 2),
    partOfModel(g, "decoder", "attention", ...(data.decoder === "ssru"
      ? ["state (SSRU)", "State of the decoder (SSRU)"]
      : ["masked self-attention", "Masked self-attention of the decoder"]), x.decoder, zone.decoder),
    orderOf(g, "decoder", x.decoder + zone.decoder / 2),
    svg("text", { x: x.output, y: g.top - 23, "font-size": g.isNarrow ? 9.5 : 13, class: "quiet" },
      "output"),
    outputs,
    svg("g", { class: "flows", "aria-hidden": "true" }, ...lines.map(({ line }) => line), down),
    ...Object.values(strips).flat(), svg("g", { class: "shares", "aria-hidden": "true" },
      ...shares), slot, next.group, beam.group, up, flying);
  room.replaceChildren(picture);
  for (const group of [inputs, outputs]) moveWithArrows(group);
  stage.scene = { g, picture, lines, strips, words, written, start, slot, flying, down, up, shares,
    next, beam };
  paint();
}

// Painting ----------------------------------------------------------------------------------------

// Draw the time that is shown.
function paint() {
  const { scene } = stage;
  if (!scene) return;
  const now = momentNow();
  const begun = placeOf("decoder", 0), end = stage.moments.length - 1;
  const isEnd = stage.time > end, t = isEnd ? shown.target.length - 1 : now.t ?? -1;
  scene.words.forEach((node, s) => setStyle(node, "opacity",
    clamp(progress(0) * 1.4 * scene.words.length - s * 1.1)));
  paintStrips(scene, begun, t, isEnd);
  paintLines(scene, now, t, isEnd);
  scene.written.forEach((node, each) => setStyle(node, "visibility",
    isEnd || progress(placeOf("drop", each)) >= 1 ? "visible" : "hidden"));
  setStyle(scene.start, "opacity", stage.time > begun ? 1 : 0);
  paintShares(scene, now);
  paintNext(scene, now, t, isEnd);
  paintBeam(scene, now, t, isEnd);
  const on = { encoder: ["encoder"], network: ["network"], decoder: ["decoder"], source: ["source"],
    next: ["feed", "next"], drop: ["next", "beam"], tokens: ["words"], vectors: ["vectors"],
    positions: ["vectors"], end: ["beam"] }[nameOfMoment(now)];
  for (const part of scene.picture.querySelectorAll(".part"))
    part.classList.toggle("on", on.includes(part.dataset.part));
  for (const each of scene.picture.querySelectorAll(".order"))
    each.classList.toggle("on", NUMBERS[nameOfMoment(now)] === NUMBERS[each.dataset.part]);
  const told = !stage.lit && focusOf(now), keys = told ? keysOf(told) : [];
  for (const node of scene.picture.querySelectorAll("[data-token]")) {
    node.classList.toggle("lit", node.dataset.token === stage.lit);
    node.classList.toggle("told", keys.includes(node.dataset.token));
  }
  paintControls(now, t);
}

function paintStrips({ strips }, begun, t, isEnd) {
  const { vectors } = shown, L = shown.weights.encoder.length;
  let layer = 0; // that reads now
  while (layer + 1 < L && stage.time > placeOf("encoder", layer + 1)) layer++;
  const isPlain = progress(2) < 0.5;
  strips.embedding.forEach((strip, s) => {
    const from = isPlain ? vectors.embeddings[s] : vectors.source[layer][s];
    fillStrip(strip, from, clamp(progress(1) * 1.4 * strips.embedding.length - s * 1.1));
  });
  const made = progress(placeOf("network", layer));
  const isLast = layer === L - 1;
  strips.memory.forEach((strip, s) => fillStrip(strip, vectors.source[layer + 1][s],
    isLast || stage.time < begun ? made : 1));
  strips.made.forEach((strip, each) => fillStrip(strip, vectors.target.at(-1)[each],
    isEnd || each < t ? 1 : each === t ? progress(placeOf("source", each)) : 0));
  strips.read.forEach((strip, each) => fillStrip(strip, vectors.target[0][each],
    isEnd || each < t ? 1 : each === t ? clamp(3 * progress(placeOf("decoder", each))) : 0));
}

// Return how much of a line is drawn, and how strongly, by the play alone.
// told: the row of weights that the moment is about.
function strengthOf({ kind, layer, t: row, rows }, now, t, isEnd, told) {
  if (!stage.hasMoved) {
    const isLower = kind === "encoder" && layer < shown.weights.encoder.length - 1;
    return [1, kind === "source" ? (row === told.row ? 1 : 0.2) : isLower ? 0 : 0.1];
  }
  if (kind === "encoder") {
    const drawn = clamp(progress(placeOf("encoder", layer)) * 1.6 - (0.9 * row) / rows, 0, 1);
    const isLast = layer === shown.weights.encoder.length - 1;
    if (isEnd) return [1, isLast ? 0.45 : 0];
    if (now.name === "network" && now.layer === layer) return [1, 0.8];
    if (now.name === "encoder" && now.layer === layer)
      return [drawn / 0.7, row === told.row ? 1 : 1 - 0.7 * clamp(4 * drawn - 2)];
    return [1, isLast && t >= 0 ? 0.1 : 0];
  }
  if (isEnd) return [1, kind === "source" ? 0.75 : 0.3];
  if (row > t) return [0, 0];
  if (row < t) return [1, kind === "source" ? 0.13 : 0.06];
  return [progress(placeOf(kind, row)), 1];
}

// Lines that touch a token under the pointer are shown in any case, once they exist.
function paintLines({ lines }, now, t, isEnd) {
  const told = focusOf(now);
  for (const each of lines) {
    let [drawn, strength] = strengthOf(each, now, t, isEnd, told);
    if (stage.lit) {
      const isTouched = each.keys.includes(stage.lit);
      const isTop = each.kind !== "encoder" || each.layer === (now.name === "encoder" ? now.layer
        : shown.weights.encoder.length - 1);
      if (isTouched && drawn > 0 && isTop) strength = Math.max(strength, stage.time > 3 ? 1 : 0);
      else strength *= 0.12;
    }
    setStyle(each.line, "strokeDashoffset", 1 - clamp(drawn));
    setStyle(each.line, "opacity", drawn <= 0 ? 0 : strength * (0.25 + 0.75 * each.weight));
  }
}

// Write the shares that a token takes in where they come from: those of the moment, or of a token
// of the output under the pointer.
function paintShares({ g, shares }, now) {
  const pointed = stage.lit?.startsWith("t") && stage.time > 3
    ? { kind: "source", row: Number(stage.lit.slice(1)) } : null;
  const told = pointed ?? (stage.lit ? null : focusOf(now));
  const isDrawn = told && (pointed || now.name === "end" || now.name === "network"
    || progress(placeOf(told.kind, told.layer ?? told.row)) > 0.6);
  const row = isDrawn ? lookingOf(told.kind, told.layer)[told.row] : [];
  const [x, anchor] = { encoder: [g.x.encoder + 3, "start"], source: [g.x.source + 3, "start"],
    decoder: [g.x.read - g.gap - 3, "end"] }[told?.kind ?? "encoder"];
  shares.forEach((node, i) => {
    const isTold = row[i] >= 0.05 && greatest(row, 4).includes(i);
    setStyle(node, "visibility", isTold ? "visible" : "hidden");
    if (!isTold) return;
    node.textContent = whole(row[i]);
    node.setAttribute("x", x);
    node.setAttribute("y", g.y(i) + 4);
    node.setAttribute("text-anchor", anchor);
  });
}

function paintNext({ g, next, slot, flying, down, up }, now, t, isEnd) {
  const isWriting = t >= 0 && !isEnd;
  setStyle(slot, "visibility", isWriting ? "visible" : "hidden");
  const grown = isEnd ? 1 : isWriting ? progress(placeOf("next", t)) : 0;
  if (!stage.hasMoved) t = farthestLooking();
  const list = t >= 0 ? likeliest(t) : [];
  const found = list.findIndex(([token]) => token === shown.target[t]);
  const taken = found < 0 ? list.length - 1 : found; // a word drawn by lot may be any other
  next.rows.forEach(({ name, bar, number }, i) => {
    const [token, p] = list[i] ?? ["", 0], isShown = grown > 0.02 && i < list.length;
    const text = token === null ? "all other words" : word(token);
    name.textContent = isShown ? fitted(text, next.name - 8, "13px system-ui, sans-serif") : "";
    number.textContent = isShown && grown > 0.6 ? percent(p) : "";
    bar.setAttribute("width", isShown ? Math.max(1, next.room * p * clamp(grown * 1.5)) : 0);
    const isTaken = i === taken && grown >= 1;
    for (const node of [name, bar, number]) node.classList.toggle("taken", isTaken);
    name.classList.toggle("quiet", token === null);
  });
  const fall = isWriting ? progress(placeOf("drop", t)) : 0;
  setStyle(flying, "visibility", fall > 0 && fall < 1 ? "visible" : "hidden");
  setStyle(down, "opacity", isWriting && grown > 0 && fall === 0 ? 1 : 0);
  setStyle(up, "visibility", isWriting && grown >= 1 ? "visible" : "hidden");
  if (!isWriting) return;
  slot.setAttribute("y", g.y(t + 1) - slot.getAttribute("height") / 2);
  const middle = g.x.made + g.strip / 2;
  down.setAttribute("d", `M${middle} ${g.y(t + 1) + 8}V${g.below}`);
  setStyle(down, "strokeDashoffset", 1 - clamp(grown * 4));
  paintArrow(g, up, next, taken, t);
  if (fall <= 0) return;
  const [x0, y0] = [next.from + next.name - 40, next.rows[taken].at + 12];
  const eased = fall * fall * (3 - 2 * fall), [x1, y1] = [g.x.output, g.y(t + 1) + g.font * 0.35];
  flying.textContent = word(shown.target[t]);
  flying.setAttribute("x", x0 + (x1 - x0) * eased);
  flying.setAttribute("y", y0 + (y1 - y0) * eased - 40 * Math.sin(Math.PI * eased));
}

// Return what the bars show at step t: the likeliest tokens, among them the one that is taken, and
// null for all others together, each with its probability.
function likeliest(t) {
  const taken = shown.steps[t].findIndex(([token]) => token === shown.target[t]);
  const told = shown.steps[t].filter((_, i) => i < LISTED - 1 || i === Math.max(LISTED - 1, taken));
  return [...told, [null, Math.max(0, 1 - told.reduce((sum, [, p]) => sum + p, 0))]];
}

// Draw the arrow from the bar of the word that is taken to its place in the sentence.
function paintArrow(g, { childNodes: [line, head] }, { to, rows }, taken, t) {
  const x = to - 11, from = rows[taken].at + 8, end = g.y(t + 1) + g.pitch / 2 + 3;
  line.setAttribute("d", `M${x - 10} ${from}H${x}V${end + 7}`);
  head.setAttribute("d", `M${x - 6} ${end + 9}L${x} ${end}L${x + 6} ${end + 9}Z`);
}

// Show the texts that the beam holds after step t.
function paintBeam({ beam }, now, t, isEnd) {
  const isDropped = t >= 0 && (isEnd || progress(placeOf("drop", t)) > 0);
  const step = isDropped ? t : t - 1;
  if (beam.step === step && beam.isEnd === isEnd) return;
  Object.assign(beam, { step, isEnd });
  const nodes = isEnd ? ranked(beam.columns).map(({ node }) => node)
    : (beam.columns[Math.min(step, beam.columns.length - 1)] ?? [])
      .filter((node) => node.kept || node.finished);
  const winner = beam.columns.length ? winnerOf(beam.columns) : null, path = new Set();
  for (let at = winner; at; at = at.parent) path.add(at);
  const best = Math.max(...nodes.map((node) => node.total));
  beam.rows.forEach(({ bar, text }, i) => {
    const node = nodes[i], isShown = node && step >= 0;
    const all = isShown && `${inTokens(node) || "\u2026"}${node.finished ? " </s>" : ""}`;
    text.textContent = isShown ? fromEnd(all, beam.room - 8)
      : !shown.beam.length && i === 0 && t >= 0
        ? fromEnd(shown.target.slice(0, step + 1).map(word).join(" "), beam.room) : "";
    bar.setAttribute("width", isShown ? Math.max(4, beam.room * Math.exp(node.total - best)) : 0);
    const isTaken = Boolean(isShown && path.has(node));
    for (const each of [bar, text]) each.classList.toggle("taken", isTaken);
  });
}

// Return a text, or its last words that fit into `room`.
function fromEnd(text, room) {
  const font = "700 13px system-ui, sans-serif", words = text.split(" ");
  const cut = () => `\u2026 ${words.join(" ")}`;
  if (widthOf(text, font) <= room) return text;
  while (words.length > 1 && widthOf(cut(), font) > room) words.shift();
  return cut();
}

// Controls ----------------------------------------------------------------------------------------

// Put the controls of the stage, its caption and the room of its picture into a section.
function showStage(section) {
  const timeline = element("input", { type: "range", id: "timeline", min: 0, step: "any",
    "aria-label": "Timeline", oninput: (event) => { pause(); goTo(Number(event.target.value)); },
    onkeydown: (event) => {
      const move = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 4,
        PageDown: -4 }[event.key];
      if (!move) return;
      event.preventDefault();
      stepBy(move);
    } });
  section.append(
    element("div", { class: "player" },
      element("button", { type: "button", id: "play",
        onclick: () => (stage.isPlaying ? pause() : play()) }, "\u25b6 Play"),
      button("\u25c0 Back", () => stepBy(-1)), button("Step \u25b6", () => stepBy(1)), timeline,
      select("", "speed",
        { " 0.5": "\u00bd\u00d7", " 1": "1\u00d7", " 2": "2\u00d7", " 4": "4\u00d7" }, " 1",
        (value) => { stage.speed = Number(value); }, "Speed")),
    element("p", { id: "caption" }),
    element("details", { id: "why", ontoggle: () => paintWhy(momentNow()) },
      element("summary", {}, "How does it know where to look?"), element("div")),
    element("p", { id: "legend" },
      element("span", {}, element("span", { class: "scale", "aria-hidden": "true" }),
        " A strip is a vector: 8 of its numbers, from \u22122 to 2."),
      element("span", {}, element("span", { class: "shareline", "aria-hidden": "true" }),
        " A line is attention: thicker is a larger share."),
      element("span", { id: "pieces" }),
      element("span", {}, "Point at a word, or press a box.")),
    element("div", { id: "scene" }));
}

function paintControls(now, t) {
  const timeline = document.getElementById("timeline"), text = captionOf(now);
  timeline.max = stage.moments.length;
  timeline.value = stage.time;
  timeline.setAttribute("aria-valuetext", text);
  const caption = document.getElementById("caption");
  if (caption.textContent !== text) caption.textContent = text;
  caption.dataset.number = NUMBERS[nameOfMoment(now)] ?? "";
  paintWhy(now);
}

// Fill what is folded under the caption, if it is open, for the attention that is told.
function paintWhy(now) {
  const why = document.getElementById("why"), told = JSON.stringify(focusOf(now));
  if (!why.open || (why.told === told && why.shown === shown)) return;
  Object.assign(why, { told, shown });
  why.lastChild.replaceChildren(...whereToLook(now));
}

// Say in the legend that rare words are written in pieces, where there are any.
function paintLegend() {
  const tokens = [...shown.source, ...shown.target], at = tokens.findIndex(continues);
  document.getElementById("pieces").textContent = at < 1 ? ""
    : ` A rare word is written in pieces: ${tokens.slice(at - 1, at + 1).map(word).map(isolated)
      .join(" ")} is one word.`;
}

function goTo(time) {
  stage.hasMoved = true;
  stage.time = clamp(time, 0, stage.moments.length);
  paint();
}

function pause() {
  stage.isPlaying = false;
  cancelAnimationFrame(stage.frame);
  document.getElementById("play").textContent = "\u25b6 Play";
}

// Run the time on, to the end or to `until`. With reduced motion, from still to still.
function play(until = stage.moments.length) {
  if (stage.time >= stage.moments.length) stage.time = 0;
  cancelAnimationFrame(stage.frame);
  stage.isPlaying = stage.hasMoved = true;
  document.getElementById("play").textContent = "\u275a\u275a Pause";
  if (isStill.matches) stage.time = Math.floor(stage.time) + 1;
  let before = null, waited = 0;
  const run = (instant) => {
    const passed = ((instant - (before ?? instant)) / 1000) * stage.speed;
    before = instant;
    const { seconds } = momentNow();
    if (isStill.matches) {
      waited += passed;
      if (waited > Math.max(1.2, seconds))
        [stage.time, waited] = [Math.min(until, stage.time + 1), 0];
    } else {
      // A moment ends with a rest, in which its caption can be read.
      stage.time = Math.min(until, stage.time + passed / seconds);
    }
    paint();
    if (stage.time >= until) pause();
    else stage.frame = requestAnimationFrame(run);
  };
  paint();
  stage.frame = requestAnimationFrame(run);
}

// Go to the next or an earlier still; a step forward is played, and the one at which the beam saves
// the sentence is played until the sentence is whole.
function stepBy(count) {
  pause();
  const at = count > 0 ? Math.floor(stage.time + 1e-9) : Math.ceil(stage.time - 1e-9);
  const to = clamp(at + count, 1, stage.moments.length);
  if (count === 1 && !isStill.matches && to > stage.time) {
    stage.time = Math.max(stage.time, to - 1);
    const isRescue = to - 1 === placeOf("drop", storyOfBeam().lead);
    play(isRescue ? stage.moments.length : to);
  } else goTo(to);
  stage.time = clamp(stage.time, 0, stage.moments.length);
  announce(captionOf(stage.moments[Math.max(0, to - 1)]));
}

// Pointing ----------------------------------------------------------------------------------------

// Light up a token wherever it is: in the stage and in the view beside it.
function lightUp(key) {
  if (stage.lit === key) return;
  stage.lit = key;
  for (const node of document.querySelectorAll("#panel [data-token]"))
    node.classList.toggle("lit", node.dataset.token === key);
  if (!stage.isPlaying) paint();
}

function followPointer() {
  const keyOf = (event) => event.target.closest?.("[data-token]")?.dataset.token ?? null;
  for (const name of ["pointerover", "focusin"])
    document.addEventListener(name, (event) => lightUp(keyOf(event)));
}
