// The view One head by hand: queries, keys and values of a head, and what it makes of them.
"use strict";

const N_SHOWN = 6; // numbers of each vector that are shown at first

function showByHand(section) {
  if (!shown.inner) { // a long translation, of which Python stored the first tokens
    section.append(element("p", {}, "Press the button: the model in this page translates the "
      + "sentence again, and shows the queries, keys and values of one head."),
    button("Show the numbers of one head", () => translateAndShow(shown.line)));
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
    aboutHand(hand.head, hand.t),
    ...(K > N_SHOWN ? [toggle] : []),
    element("p", { class: "numbers" }, `q = ${few(hand.query)}`),
    scrollBox("One head by hand", handTable(hand, few)),
    element("p", { class: "numbers" }, `sum of softmax \u00d7 v = ${few(hand.sum)}`),
    moreOfHand(hand.t, K));
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

// Return a paragraph: of which head and token the numbers are.
function aboutHand(head, t) {
  const { kind, layer } = chosen, [rows] = namesOf(kind);
  return paragraph(`What head ${head + 1} of layer ${layer + 1} (${KINDS[kind]}) computes for `
    + `${quoted(rows[t])}. Choose another head or word in the views Attention and Heads.`);
}

// Return what these numbers mean, for those who want more.
function moreOfHand(t, K) {
  const D = shown.inner.d_model, d_k = () => ["d", element("sub", {}, "k")];
  const { kind } = chosen, isEncoder = kind === "encoder";
  const most = chosen.reverse ? " A token that is looked at is chosen there: of those that look at "
    + "it, this one does most." : "";
  const seen = kind === "source" ? "from the encoder's output for a token of the input"
    : "from the vector of a token that is looked at";
  return more(
    ...(isEncoder && !most ? [] : [`${isEncoder ? "" : "Computed at the token before it, "
      + `${quoted(alreadyRead()[t])}.`}${most}`]),
    "Each token has a vector in each layer. Each head has three learned matrices, "
      + `which turn such vectors of ${D} numbers into shorter ones, of ${K}: the query q, what `
      + "the looking token asks for, from its own vector; the key k, what can be found at a "
      + `token, and the value v, what it passes on, both ${seen}.`,
    element("p", {}, "The typical size of q \u00b7 k, a sum of ", ...d_k(), " products, grows with "
      + "\u221a", ...d_k(), ". Undivided, it would make the softmax nearly all or nothing, so the "
      + "score is q \u00b7 k / \u221a", ...d_k(), "; here ", ...d_k(),
      ` is ${K}. A mask hides what may not be seen, the softmax makes `
      + "weights of the other scores, and the head's result is the sum of the values times these "
      + "weights. The results of all heads are put one after another into one vector, and a "
      + "further matrix of the layer mixes them."));
}

// Return the table with a row for each token that is looked at. few: shortens a vector to a text.
function handTable({ query, keys, values, products, hidden, weights }, few) {
  const [, columns] = namesOf(chosen.kind), K = query.length;
  const score = `score = q \u00b7 k / \u221a${K}`;
  const headings = ["token", "q \u00b7 k", score, "mask", "softmax", "k", "v"];
  return element("table", { class: "numbers" },
    element("tr", {}, ...headings.map((name) => element("th", { scope: "col" }, name))),
    ...columns.map((name, s) => element("tr", { class: hidden[s] ? "off" : null,
      "data-token": keyOf(chosen.kind, true, s) },
      element("th", { scope: "row", dir: "auto" }, word(name)),
      ...[products[s].toFixed(2), (products[s] / Math.sqrt(K)).toFixed(2),
        hidden[s] ? "\u2212\u221e" : "may look", weights[s].toFixed(2), few(keys[s]),
        few(values[s])].map(
        (text) => element("td", {}, text)))));
}

function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}
