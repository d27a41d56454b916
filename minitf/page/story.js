// The story of the stage: the moments of a translation, and what is said at each.
//
// What is said of an attention is read off its weights.
"use strict";

// Moments -----------------------------------------------------------------------------------------

// Return what happens, in order, with its length in seconds.
function momentsOf({ weights, target }) {
  const moments = [{ name: "tokens", seconds: 3 }, { name: "vectors", seconds: 3.5 },
    { name: "positions", seconds: 3.5 }];
  weights.encoder.forEach((_, layer) => moments.push(
    { name: "encoder", layer, seconds: layer ? 3 : 10 }, { name: "network", layer, seconds: 2.2 }));
  const { turn, lead } = storyOfBeam();
  target.forEach((_, t) => {
    // The first word is explained; so is one for which the decoder goes back.
    const [own, source, next, drop] = !t ? [4, 5, 4, 5]
      : goesBack(t) ? [1, isVerbAtEnd(t) ? 7 : 4, 2, 1] : [0.8, 1.6, 1, 0.7];
    moments.push({ name: "decoder", t, seconds: own }, { name: "source", t, seconds: source },
      { name: "next", t, seconds: t === turn ? 3 : next },
      { name: "drop", t, seconds: t === turn || t === lead ? 7 : drop });
  });
  return [...moments, { name: "end", seconds: 3 }];
}

const placeOf = (name, number) => stage.moments.findIndex((moment) =>
  moment.name === name && (number === undefined || (moment.layer ?? moment.t) === number));

// Return how much of a moment has happened: 0 to 1.
const progress = (place) => clamp(stage.time - place);

// Return the moment of the time that is shown; a whole number is the end of the one before it.
const momentNow = () =>
  stage.moments[clamp(Math.ceil(stage.time) - 1, 0, stage.moments.length - 1)];

// Return the number of the box in which a moment happens, as it stands on the stage.
const NUMBERS = { tokens: 1, vectors: 2, positions: 2, encoder: 3, network: 4, decoder: 5,
  source: 6, next: 7 };

// Before the play, the attention to the input is told, of which all is to be seen.
const nameOfMoment = ({ name }) => (stage.hasMoved ? name : "source");

// Return the row of weights that a moment is about: of which attention, in which layer, and which
// token looks; null if there is none. Before the play, it is that of the word that looks farthest.
function focusOf({ name, layer, t }) {
  if (name === "end") return stage.hasMoved ? null : { kind: "source", row: farthestLooking() };
  if (name === "encoder" || name === "network")
    return { kind: "encoder", layer, row: strongest(layer)[0] };
  if (name === "decoder") return { kind: name, row: t };
  return t === undefined ? null : { kind: "source", row: t };
}

// Return the keys of the token that looks, in a row that is told, and of the one it looks at most.
function keysOf({ kind, layer, row }) {
  const most = favourite(lookingOf(kind, layer)[row]);
  return [keyOf(kind, false, row), keyOf(kind, true, most)];
}

// What the weights show ---------------------------------------------------------------------------

// Return the attention that the stage shows of a kind: what the reader has chosen, or in the last
// layer, the mean of all heads.
function lookingOf(kind, layer = null) {
  const isChosen = chosen.kind === kind;
  const ofLayer = layer ?? (isChosen ? chosen.layer : shown.weights[kind].length - 1);
  return matrixOf(kind, ofLayer, isChosen ? chosen.head : -1);
}

// Return whether a token is only a mark: the end, or punctuation.
const isMark = (token) => token === "</s>" || /^[\u2581\p{P}]+$/u.test(token);

// Return the row, the column and the weight of the word that looks most at another one.
function strongest(layer) {
  let best = [0, 0, -1];
  lookingOf("encoder", layer).forEach((row, i) => row.forEach((weight, j) => {
    if (i !== j && !isMark(shown.source[i]) && !isMark(shown.source[j]) && weight > best[2])
      best = [i, j, weight];
  }));
  return best;
}

// Return the place that row t looks at most.
const favourite = (row) => greatest(row, 1)[0];

// Return whether step t looks at a word of the input well before the one that a step before it has
// looked at.
function goesBack(t) {
  const weights = lookingOf("source"), s = favourite(weights[t]);
  const isSure = (row) => row[favourite(row)] >= 0.5 && !isMark(shown.source[favourite(row)]);
  const before = weights.slice(0, t).findLast(isSure);
  return before !== undefined && isSure(weights[t]) && favourite(before) > s + 1;
}

// Return whether all words of the input but the one at s have been looked at most before step t,
// and none of them is later.
function isOnlyOneLeft(t, s) {
  const all = lookingOf("source").map(favourite);
  return shown.source.every((token, i) => i === s || isMark(token)
    || (all.indexOf(i) >= 0 && all.lastIndexOf(i) < t));
}

const AUXILIARY = /^(hat|habe|haben|ist|bin|sind|wird|werde|werden|kann|muss|will|wollen)$/;

// Return whether token t of a German text is a part of the verb at the end of its clause: by its
// form, and because nothing follows but punctuation or an auxiliary.
function isVerbAtEnd(t) {
  const [name, next] = [shown.target[t], shown.target[t + 1] ?? "</s>"].map(word);
  return data.languages[1] === "de" && (isMark(next) || AUXILIARY.test(next))
    && /^(?!nicht$)\p{Ll}+(n|t)$|^(an|ab|auf|mit|zu|zur\u00fcck)$/u.test(name);
}

// Return where the beam was of use: the step `turn` at which greedy decoding would have written
// another token, as it is the likeliest; and the step `lead` at which the sentence that wins has
// overtaken those that go on with it. Both are -1 if greedy decoding writes the same.
function storyOfBeam() {
  if (!shown.beam.length) return { turn: -1, lead: -1 };
  const turn = shown.steps.findIndex(([[token]], t) => token !== shown.target[t]);
  const columns = beamNodes(shown.beam), path = new Set();
  for (let at = winnerOf(columns); at; at = at.parent) path.add(at);
  const lead = columns.findIndex(([first], t) => t > turn && path.has(first));
  return { turn, lead: turn < 0 ? -1 : lead };
}

// What is said ------------------------------------------------------------------------------------

const quoted = (token) => `\u201c${isolated(word(token))}\u201d`;
const whole = (weight) => `${Math.round(100 * weight)}%`;

// Return in words what a row of weights mixes: its greatest part, or if that is less than a half,
// the two greatest.
function sharesOf(row, tokens) {
  const [first, second] = greatest(row, 2), of = (i) => `${whole(row[i])} ${quoted(tokens[i])}`;
  const isShared = row[first] < 0.5 && row[second] >= 0.1 && !isMark(tokens[second]);
  return isShared ? `${of(first)} and ${of(second)}` : of(first);
}

// Return why the decoder goes back at step t, as far as the weights show it.
function whyBack(t) {
  const row = lookingOf("source")[t], s = favourite(row);
  const back = `it looks back at ${quoted(shown.source[s])} (${whole(row[s])})`;
  return (isOnlyOneLeft(t, s) ? `All other words are translated: now ${back}.`
    : `Now ${back}, which it had passed over.`)
    + (isVerbAtEnd(t) ? " In German, this part of the verb comes last."
      : " In the translation, it belongs here.");
}

// Return at most two short sentences about a moment. Only the first word is told at length.
function captionOf({ name, layer, t }) {
  const last = shown.weights.encoder.length - 1, number = `Step ${t + 1}`;
  switch (name) {
    case "tokens":
      return "The sentence is cut into tokens: words, or pieces of rare words. </s> marks its end.";
    case "vectors":
      return "Each word becomes a vector: a list of numbers, learned in training. Words that are "
        + "used alike have similar vectors.";
    case "positions":
      return "A pattern that tells its place is added to each vector. Without it, the model would "
        + "not know the order of the words.";
    case "encoder": {
      const [i, j, weight] = strongest(layer);
      const takes = `${whole(weight)} of what ${quoted(shown.source[i])} takes in is `
        + `${quoted(shown.source[j])}`;
      return layer ? `Layer ${layer + 1} does both again with the new vectors: now ${takes}.`
        : "Attention: each word takes in a mixture of all words. It asks with one vector, each "
          + "word offers another (both are learned), and the better the two match, the larger the "
          + `share: ${takes}.`;
    }
    case "network":
      return layer < last
        ? "Then a small network, the same for every word, works on each vector by itself."
        : "The encoder is done: each vector now stands for what its word means in this sentence.";
    case "decoder":
      return t ? `${number}: first, the decoder looks at what it has written so far.`
        : "Now the decoder writes the translation, word by word. It sees only what it has written "
          + "so far (the rest is masked): at first, just the start mark <s>.";
    case "source": {
      const row = lookingOf("source")[t], shares = sharesOf(row, shown.source);
      if (!t) return "To know what to write next, it looks at the input and takes in a mixture of "
        + `its words: here, ${shares}.`;
      return goesBack(t) ? whyBack(t) : `${number}: it takes in ${shares}.`;
    }
    case "next": {
      const [[token, p]] = shown.steps[t], taken = `${quoted(token)} gets ${percent(p)}`;
      if (t === storyOfBeam().turn)
        return `${number}: ${taken}, more than ${ownAt(t)}. Watch both.`;
      return t ? `${number}: ${taken}.` : "From what it has taken in, it gives every word that it "
        + `knows a probability: ${taken}, all others together get ${percent(1 - p)}.`;
    }
    case "drop":
      return captionOfDrop(t, number);
    default:
      return stage.hasMoved ? captionOfEnd() : captionOfStart();
  }
}

// Return the token of step t of the translation, with its probability if that is known.
function ownAt(t) {
  const own = shown.steps[t].find(([other]) => other === shown.target[t]);
  return quoted(shown.target[t]) + (own ? ` (${percent(own[1])})` : "");
}

function captionOfDrop(t, number) {
  const { turn, lead } = storyOfBeam(), token = quoted(shown.target[t]);
  if (t === turn) {
    const [[likeliest, p]] = shown.steps[t];
    return `${quoted(likeliest)} (${percent(p)}) is likelier than ${ownAt(t)}, so without a beam `
      + "it would be written. The beam goes on with both.";
  }
  if (t === lead)
    return `Now the version with ${quoted(shown.target[turn])} is ahead, because the other one `
      + "goes on with less likely words. That is what the beam is for.";
  if (t) return `${number}: ${token} is written.`;
  return shown.beam.length ? `${token} is written. The model also keeps the ${shown.width - 1} `
    + "next best versions (together: the beam), in case this one leads to a worse sentence."
    : `${token} is written, and read for the next word.`;
}

function captionOfEnd() {
  const { turn } = storyOfBeam();
  if (!shown.beam.length) return "Done: the end mark </s> is written.";
  if (turn < 0)
    return `Done. The beam kept the ${shown.width} best versions at each step, in case the `
      + "likeliest word led to a worse sentence; here it did not.";
  return "Done. Without the beam, the translation would have been "
    + (shown.greedy ? `\u201c${isolated(shown.greedy)}\u201d`
      : `another sentence, with ${quoted(shown.steps[turn][0][0])} instead of `
        + `${quoted(shown.target[turn])}.`);
}

// What is seen before the play: one row of attention.
function captionOfStart() {
  const t = farthestLooking(), shares = sharesOf(lookingOf("source")[t], shown.source);
  return `Attention: to write ${quoted(shown.target[t])}, the model looks at the input and takes `
    + `in a mixture of its words: here, ${shares}.`
    + (goesBack(t) && isVerbAtEnd(t) ? " It looks back because German puts this part of the verb "
      + "last." : "");
}

// Return what is said of the question how a word knows where to look: what a query and a key are,
// and those of the row that a moment tells, in the head that looks at one place most.
function whereToLook(now) {
  const told = focusOf(now);
  return [
    paragraph("Three learned matrices turn the vector of a word into three others: the query (what "
      + "it asks for), the key (what it can be found by) and the value (what it passes on). A "
      + "query and a key are multiplied number by number; the sum of these products, divided by "
      + "the square root of their count, is the score of the pair. The softmax makes shares of the "
      + "scores, and the word takes in that share of each value."),
    ...(told && shown.inner && !isChanged() ? [paragraph(scoresOf(told)),
      button("See all the numbers", () => {
        chooseShown();
        chosen.head = bestHead(told)[0];
        openView("hand");
      })] : []),
    lessonOn("Lesson 01 of the course derives this",
      "../01_attention.html#how-can-a-word-look-at-other-words"),
  ];
}

// Return the number of the head whose row has the greatest weight, and that row.
function bestHead({ kind, layer = shown.weights[kind].length - 1, row }) {
  const rows = shown.weights[kind][layer].map((head) => head[row]);
  const [head] = greatest(rows.map((weights) => Math.max(...weights)), 1);
  return [head, rows[head]];
}

// Return in words the two greatest scores of a row.
function scoresOf({ kind, layer = shown.weights[kind].length - 1, row }) {
  const [head, weights] = bestHead({ kind, layer, row }), K = shown.inner.d_k;
  const { queries, keys } = shown.inner[kind][layer];
  const part = (vector) => Array.from(vector.slice(head * K, (head + 1) * K));
  const [rows, columns] = namesOf(kind), [first, second] = greatest(weights, 2);
  const score = (s) => (dot(part(queries[row]), part(keys[s])) / Math.sqrt(K)).toFixed(1)
    .replace("-", "\u2212");
  const asks = kind === "encoder" ? `the query of ${quoted(rows[row])}`
    : `the query with which the decoder looks before it writes ${quoted(rows[row])}`;
  return `Here, in head ${head + 1} of layer ${layer + 1}, ${asks} scores ${score(first)} with the `
    + `key of ${quoted(columns[first])}` + (second === undefined || isHidden(kind, row, second)
    ? `: the share is ${whole(weights[first])}.`
    : ` and ${score(second)} with that of ${quoted(columns[second])}, the next best: the shares `
      + `are ${whole(weights[first])} and ${weights[second] < 0.005 ? "less than 1%"
        : whole(weights[second])}.`);
}

// Return a link to a lesson of the book, if the page is shown in it; else the lesson is only named.
function lessonOn(text, address) {
  if (self === top) return paragraph(`${text}.`);
  return element("p", {}, element("a", { href: address, target: "_top" }, text), ".");
}
