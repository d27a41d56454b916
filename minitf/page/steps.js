// The view Next word: the likely next tokens at each step.
"use strict";

function showSteps(section) {
  const last = shown.target.length - 1, layer = shown.weights.source.length - 1;
  const cross = matrixOf("source", layer, -1);
  const slider = element("input", { type: "range", id: "step", min: 0, max: last,
    oninput: (event) => go(Number(event.target.value), true) });
  const place = element("span"), body = element("div");
  const go = (step, isMoved) => {
    const t = (chosen.step = clamp(step, 0, last)), now = `Step ${t + 1} of ${last + 1}`;
    place.textContent = `${now} `;
    slider.value = t;
    slider.setAttribute("aria-valuetext", `${now}: ${isolated(word(shown.target[t]))}`);
    body.replaceChildren(...stepOf(t, cross[t], layer));
    if (!isMoved) return;
    pause();
    goTo(placeOf("next", t) + 1); // the stage follows
  };
  const by = (distance) => () => {
    go(chosen.step + distance, true);
    announce(slider.getAttribute("aria-valuetext"));
  };
  section.append(
    paragraph("From the decoder\u2019s last vector, the softmax makes a probability for each "
      + "token of the vocabulary. One is written, and the next step begins."),
    element("div", { class: "controls" }, element("label", {}, place, slider),
      button("Back", by(-1)), button("Forward", by(1))), body);
  go(chosen.step, false);
}

// Return the elements that show step t. weights: of the attention to the source.
function stepOf(t, weights, layer) {
  const tokens = shown.steps[t].map(([token]) => token), likely = shown.steps[t].map(([, p]) => p);
  const others = Math.max(0, 1 - likely.reduce((sum, p) => sum + p, 0));
  const taken = t === shown.limit ? "None of them is taken: the text was cut off here, at its "
    + "greatest length, and the end mark was added."
    : tokens[0] === shown.target[t] ? "The first of them is taken."
    : "Another is taken: beam search compares several unfinished translations, not single steps.";
  const smoothed = isSmoothed && likely[0] > 0.9 ? "Even where the model is sure, something is "
    + "left for all others: it was trained with label smoothing, to give the right token a "
    + "little less than 100%." : "";
  return [
    element("p", { class: "sofar", dir: directionOf(false), lang: data.languages[1] || null },
      ...alreadyRead().slice(0, t + 1).flatMap((token, i) =>
        [element("bdi", { "data-token": i ? `t${i - 1}` : "start" }, word(token)), " "]),
      element("b", {}, "[ ", element("bdi", { "data-token": `t${t}` }, word(shown.target[t])),
        " ]")),
    element("div", { class: "columns" },
      element("div", {}, element("h3", {}, "The most likely next tokens"),
        bars([...tokens.map(word), "all others"], [...likely, others], percent),
        element("p", { class: "note" }, taken),
        ...(smoothed ? [more(smoothed)] : [])),
      element("div", {}, element("h3", {}, "Where the decoder looks in the input"),
        bars(shown.source.map(word), weights, undefined, (i) => `s${i}`),
        element("p", { class: "note" }, `Layer ${layer + 1}, the mean of its heads.`)))];
}
