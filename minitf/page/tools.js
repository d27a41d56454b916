// What all views use: elements, names of tokens, the keyboard, tables, bars, files.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

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

// Thai, Lao, Myanmar, Khmer, Chinese and Japanese have no spaces between words, so no token tells
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

const percent = (p) => (p < 0.0005 ? "< 0.1%" : `${(100 * p).toFixed(p < 0.095 ? 1 : 0)}%`);
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

// Return the first of some texts that fits into `room`, or the beginning of the last.
function firstFitting(texts, room, font) {
  return texts.find((text) => widthOf(text, font) <= room) ?? fitted(texts.at(-1), room, font);
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
// keyOf: returns the key of a bar's token on the stage.
function bars(names, numbers, format = (p) => p.toFixed(2), keyOf = () => null) {
  return element("ul", { class: "bars" }, ...names.map((name, i) => {
    const bar = element("span", { class: "bar" }, element("span"));
    bar.firstChild.style.width = `${100 * numbers[i]}%`;
    return element("li", { "data-token": keyOf(i) },
      element("span", { class: "name", dir: "auto" }, name), bar,
      element("span", { class: "number" }, format(numbers[i])));
  }));
}

// Return a list to choose from, with its label; name: of the list where no label is to be seen.
function select(label, id, options, value, change, name = null) {
  const list = element("select", { id, "aria-label": name,
    onchange: (event) => change(event.target.value) },
    ...Object.entries(options).map(([key, text]) =>
      element("option", { value: key, selected: String(value) === key }, text)));
  return element("label", {}, `${label} `, list);
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

// Return a paragraph that is folded behind "more".
function more(...children) {
  return element("details", { class: "more" }, element("summary", {}, "more"),
    ...children.map((child) => (typeof child === "string" ? element("p", {}, child) : child)));
}

const paragraph = (text) => element("p", {}, text);
