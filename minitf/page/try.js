// The sentence that one types, and the view Try something: change the model, see what it does.
"use strict";

// What the reader has changed. hidden: numbers of source tokens; off: names of heads, such as
// "source-0-3"; weight: { kind, row, column, value }, in all heads of all layers; seed: of the
// words that are drawn. before: the translation without changes, and the width of its beam.
const untouched = () => ({ hidden: new Set(), off: new Set(), weight: null, withoutPositions: false,
  width: data.search.width, temperature: 0, seed: 1, before: null });
let tried = untouched();
let isWaiting = false; // for the translation that is being made, to make another

// Return whether the model computes anything else than it has learned to.
const isChanged = () => tried.hidden.size > 0 || tried.off.size > 0 || tried.weight !== null
  || tried.withoutPositions;

// Return whether anything is other than when the translation `before` was made.
const isTried = () => isChanged() || tried.temperature > 0
  || tried.width !== (tried.before?.width ?? data.search.width);

// Return the weights that the reader wants instead of those that the model has computed.
function wantedWeights(name, head, row, weights) {
  const [, side, layer, what] = /^(\w+)\.layers\.(\d+)\.(\w+)$/.exec(name);
  const kind = what === "source_attention" ? "source" : side, { weight } = tried;
  if (tried.off.has(`${kind}-${layer}-${head}`)) return weights.map(() => 0);
  let wanted = weights;
  if (kind !== "decoder" && tried.hidden.size) {
    // As a mask does it: the others share what a hidden token had.
    const left = wanted.reduce((sum, w, s) => sum + (tried.hidden.has(s) ? 0 : w), 0);
    wanted = wanted.map((w, s) => (tried.hidden.has(s) ? 0 : w / Math.max(left, 1e-9)));
  }
  if (weight?.kind === kind && weight.row === row && weight.column < wanted.length) {
    const others = Math.max(1 - wanted[weight.column], 1e-9);
    wanted = wanted.map((w, s) => (s === weight.column ? weight.value
      : (w * (1 - weight.value)) / others));
  }
  return wanted;
}

// Return a function that returns numbers from 0 on, below 1, the same ones for the same seed: a linear
// congruential generator with the constants of Numerical Recipes.
function drawing(seed) {
  let state = (seed * 2654435761) >>> 0;
  return () => {
    state = (1664525 * state + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

// Translate a text as the reader wants it, and show it in the stage and in all views. Tells the
// reader why, where it cannot. A new sentence is translated without changes.
async function translateAndShow(text, width = tried.width) {
  const output = document.getElementById("translation"), note = document.getElementById("took");
  if (busy) {
    note.textContent = "The page is still translating: press again in a moment.";
    announce(note.textContent);
    return;
  }
  busy = true;
  try {
    const begun = performance.now(), model = await unpackModel();
    const isNew = text !== shown.line;
    if (isNew) tried = { ...untouched(), width };
    tried.width = width;
    model.changes = isChanged()
      ? { weights: wantedWeights, withoutPositions: tried.withoutPositions } : undefined;
    const search = { width, temperature: tried.temperature, draw: drawing(tried.seed) };
    shown = await translate(text, search, (found) => { output.textContent = found; });
    const seconds = (performance.now() - begun) / 1000;
    if (isNew || !isTried()) tried.before = { text: shown.translation, width };
    Object.assign(chosen,
      { row: farthestLooking(), reverse: false, step: 0, alpha: data.search.alpha });
    stage.time = momentsOf(shown).length;
    updateHeader();
    updateAll();
    if (isNew) update(showTry);
    else renameRows();
    tellResult();
    note.textContent = noteOn();
    document.getElementById("about").textContent =
      `${shown.target.length} output tokens with the end mark, in ${seconds.toFixed(2)} s.`;
    announce(shown.translation, data.languages[1]);
  } catch (error) {
    output.textContent = shown.translation;
    note.textContent = `${error.message} The page still shows the sentence before.`;
    announce(note.textContent);
  } finally {
    busy = false;
  }
  setTimeout(compareWithGreedy); // after the translation is drawn
}

// Translate the sentence again after a change; while another is being made, after that.
async function tryAgain() {
  if (isWaiting) return;
  isWaiting = true;
  while (busy) await new Promise((resolve) => setTimeout(resolve, 10));
  isWaiting = false;
  tried.before ??= { text: data.translation, width: data.search.width };
  pause();
  await translateAndShow(shown.line);
}

// Return what is said about a translation that the page made.
function noteOn() {
  const pieces = inPieces();
  return (shown.isSeveral ? "The model reads one sentence at a time: of several, it may drop some. " : "")
    + (pieces.length ? "Read in pieces, as words are that the model has seen rarely or never: "
      + `${pieces.map(isolated).join(", ")}. So the translation may well be wrong. ` : "")
    + (shown.source.some((token) => BYTE.test(token)) ? "Characters that it does not know are "
      + "read as bytes, such as <0xE6>; \u2423 is a space before one. translate.py keeps them: its "
      + "model does not read them." : "");
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

// Return the line in which a sentence is typed.
function sentenceForm() {
  const language = languageName(data.languages[0]);
  const field = element("input", { type: "text", id: "field", value: shown.line, dir: "auto",
    lang: data.languages[0] || null, autocomplete: "off", spellcheck: "false",
    "aria-label": `Sentence${language ? ` in ${language}` : ""}` });
  const submit = async (event) => {
    event?.preventDefault();
    await translateAndShow(field.value);
    if (!isStill.matches) stage.time = 0;
    if (!isStill.matches) play();
  };
  const lines = [...new Set([data.line, ...data.examples, data.turning])].filter(Boolean);
  const examples = element("select", { id: "examples", "aria-label": "Examples",
    onchange: () => {
      field.value = examples.value;
      examples.selectedIndex = 0;
      submit();
    } }, element("option", { value: "" }, "Examples"), ...lines.map((line) =>
    element("option", { value: line, lang: data.languages[0] || null }, line)));
  return element("form", { id: "sentence", onsubmit: submit },
    field, element("button", { type: "submit" }, "Translate"),
    ...(lines.length > 1 ? [examples] : []),
    element("p", { id: "took", class: "note" }));
}

function showTry(section) {
  const result = element("div", { id: "result", role: "status" });
  section.append(
    paragraph("Change what the model does, and see what becomes of the translation. The stage and "
      + "all views follow."),
    result,
    element("h3", {}, "Hide a word"), wordsToHide(),
    element("h3", {}, "Switch heads off (layer.head)"), headsToSwitch(),
    element("h3", {}, "Change a weight"), weightToChange(),
    element("h3", {}, "Positions"), positionsToTake(),
    element("h3", {}, "Search"), searchToChange(),
    more("A hidden word is masked: no word looks at it. A head that is off adds nothing to the "
      + "sum of the heads. A changed weight holds in all heads of all layers; the others share "
      + "the rest.",
    "At each step, a temperature above 0 draws the word by lot from softmax(ln P / temperature): "
      + "the higher it is, the more unlikely words are drawn.",
    ...(data.hint ? [data.hint] : []),
    "In the course: heads are lesson 03, positions lesson 05, masks lesson 06, beam search lesson "
      + "08."));
  tellResult();
}

// Say what the changes have done to the translation.
function tellResult() {
  const result = document.getElementById("result");
  if (!result) return;
  const before = tried.before?.text ?? shown.translation;
  const language = data.languages[1] || null, isSame = before === shown.translation;
  result.replaceChildren(
    element("p", { lang: language, dir: "auto" }, before),
    element("p", { class: "said", lang: language, dir: "auto" }, ...(isSame
      ? [element("span", { lang: "en" },
        isTried() ? "The same, in spite of the change." : "No change yet.")]
      : compared(before.split(" "), shown.translation.split(" ")).flatMap(([text, isNew]) =>
        [isNew ? element("mark", {}, text) : text, " "]))));
  const restore = button("Restore", async () => {
    tried = { ...untouched(), before: tried.before };
    await tryAgain();
    update(showTry);
    document.getElementById("try-title")?.focus();
  });
  restore.id = "restore";
  restore.disabled = !isChanged() && !tried.temperature && tried.width === data.search.width;
  result.append(restore);
}

// Return each word of a text and whether it is new: not in the longest list of words that both
// texts have in the same order.
function compared(before, after) {
  const length = Array.from({ length: before.length + 1 }, () =>
    new Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i--)
    for (let j = after.length - 1; j >= 0; j--)
      length[i][j] = before[i] === after[j] ? length[i + 1][j + 1] + 1
        : Math.max(length[i + 1][j], length[i][j + 1]);
  let i = 0;
  return after.map((text, j) => {
    while (i < before.length && before[i] !== text && length[i + 1][j] >= length[i][j + 1]) i++;
    const isKept = i < before.length && before[i] === text;
    if (isKept) i++;
    return [text, !isKept];
  });
}

// Return a button that is pressed or not.
function toggle(text, isPressed, press, attributes = {}) {
  return element("button", { type: "button", "aria-pressed": String(isPressed),
    onclick: ({ currentTarget: node }) => {
      const now = node.getAttribute("aria-pressed") !== "true";
      node.setAttribute("aria-pressed", String(now));
      press(now);
      tryAgain();
    }, ...attributes }, text);
}

// Put a member into a set, or take it out.
const put = (set, member, isIn) => (isIn ? set.add(member) : set.delete(member));

function wordsToHide() {
  return moveWithArrows(element("div", { class: "words", role: "group", "aria-label": "Hide a word",
    dir: directionOf(true), lang: data.languages[0] || null },
  ...shown.source.map((token, s) => toggle(word(token), tried.hidden.has(s),
    (isHidden) => put(tried.hidden, s, isHidden), { "data-token": `s${s}` }))));
}

function headsToSwitch() {
  return element("div", { id: "switches" }, ...Object.entries(KINDS).map(([kind, title]) =>
    element("div", { class: "switches", role: "group", "aria-label": `Heads: ${title}` },
      element("span", {}, title), ...shown.weights[kind].flatMap((heads, l) => heads.map((_, h) => {
        const name = `${kind}-${l}-${h}`;
        return toggle(`${l + 1}.${h + 1}`, tried.off.has(name),
          (isOff) => put(tried.off, name, isOff),
          { "aria-label": `${l + 1}.${h + 1}: layer ${l + 1}, head ${h + 1} off` });
      })))));
}

const nameOfRow = (t) => `${t + 1} ${word(shown.target[t])}`;

// Name the words of the translation that is shown now in the list of those that can be chosen.
function renameRows() {
  const list = document.getElementById("weight-row");
  if (!list) return;
  const at = Math.min(list.selectedIndex, shown.target.length - 1);
  list.replaceChildren(...shown.target.map((_, t) =>
    element("option", { value: ` ${t}`, selected: t === at }, nameOfRow(t))));
}

function weightToChange() {
  const ofToken = (tokens) => Object.fromEntries(tokens.map((token, i) => [` ${i}`, word(token)]));
  const asItIs = () => lookingOf("source")[state.row]?.[state.column] ?? 0;
  const row = chosen.kind === "source" && !chosen.reverse ? chosen.row : farthestLooking();
  const state = { kind: "source", row, column: favourite(lookingOf("source")[row]),
    ...tried.weight };
  state.value ??= asItIs();
  const value = element("span", {}, state.value.toFixed(2));
  const slider = element("input", { type: "range", id: "weight", min: 0, max: 1, step: 0.05,
    value: state.value, "aria-label": "Weight", oninput: () => {
      state.value = Number(slider.value);
      value.textContent = state.value.toFixed(2);
      tried.weight = { ...state };
      isWeightChanged = true;
      tryAgain();
    } });
  let isWeightChanged = Boolean(tried.weight);
  const set = (name) => (text) => {
    state[name] = Number(text);
    tried.weight = null; // what was changed is as it was; the slider shows the weight of this pair
    state.value = asItIs();
    slider.value = state.value;
    value.textContent = state.value.toFixed(2);
    if (isWeightChanged) tryAgain();
    isWeightChanged = false;
  };
  return element("div", { class: "controls" },
    select("When writing word", "weight-row",
      Object.fromEntries(shown.target.map((_, i) => [` ${i}`, nameOfRow(i)])),
      ` ${state.row}`, set("row")),
    select("look at", "weight-column", ofToken(shown.source), ` ${state.column}`, set("column")),
    element("label", {}, "weight ", value, slider));
}

function positionsToTake() {
  return element("p", {}, toggle("Take the positions away", tried.withoutPositions, (isOff) => {
    tried.withoutPositions = isOff;
  }));
}

function searchToChange() {
  const slider = (name, label, min, max, step, format) => {
    const told = element("span", {}, format(tried[name]));
    return element("label", {}, `${label} `, told, element("input", { type: "range",
      id: `try-${name}`, min, max, step, value: tried[name], oninput: (event) => {
        tried[name] = Number(event.target.value);
        told.textContent = format(tried[name]);
        tryAgain();
      } }));
  };
  return element("div", { class: "controls" },
    slider("width", "Beam", 1, 8, 1, (n) => (n > 1 ? String(n) : "1: greedy")),
    slider("temperature", "Temperature", 0, 3, 0.1, (x) => (x ? x.toFixed(1) : "0: no lot")),
    button("Draw again", () => {
      tried.seed++;
      tryAgain();
    }));
}
