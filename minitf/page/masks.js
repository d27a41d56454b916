// The view Masks: who must not look at whom.
"use strict";

// The masks of a batch of two sentences: this one, and its beginning, padded to the same length.
function showMasks(section) {
  const half = (tokens) => Math.max(1, Math.ceil(tokens.length / 2));
  const shorten = (tokens) => [...tokens.slice(0, half(tokens) - 1), "</s>"];
  const pad = (tokens, length) => [...tokens, ...new Array(length - tokens.length).fill("<pad>")];
  const cut = (tokens) => (tokens.length > 14 ? [...tokens.slice(0, 13), "</s>"] : tokens);
  const source = cut(shown.source), target = cut(shown.target);
  const batch = [source, target].map((tokens) => [tokens, pad(shorten(tokens), tokens.length)]);
  section.append(paragraph("A row may look at its solid cells only. Hatched cells are hidden by a "
    + "mask: a word that is still to be written, or padding."));
  const isWhole = !shown.isCut && source === shown.source && target === shown.target;
  const headings = [isWhole ? "This sentence" : "This sentence (its first tokens)",
    "A shorter sentence of the same batch (as an example, the beginning of this one)"];
  headings.forEach((heading, i) => section.append(element("h3", {}, heading),
    element("div", { class: "masks" }, ...masksOf(batch[0][i], batch[1][i], i > 0))));
  section.append(more(
    element("p", {}, "Hidden means that the scores from which the softmax makes the weights "
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
        + "at. Rows of <pad> are computed like the others, and ignored. The decoder's own padding "
        + "needs no mask: it comes last, so the mask of the future hides it from all tokens of the "
        + "sentence. Only the rows of <pad> see it."))));
}

// Return the three masks of a sentence of the batch: the tokens that are read and written.
function masksOf(read, written, isPadded) {
  const padding = isPadded ? "hides padding" : "nothing to hide";
  return [
    mask("encoder", `encoder: ${padding}`, read, read, (t, s) => read[s] !== "<pad>"),
    mask("decoder", "decoder: hides the future", written, ["<s>", ...shifted(written)],
      (t, s) => !isHidden("decoder", t, s)),
    mask("source", `decoder to source: ${padding}`, written, read, (t, s) => read[s] !== "<pad>"),
  ];
}

// Return what the decoder has read at each place after <s>: all but the last token, and for a
// padded line, all but its end mark.
function shifted(written) {
  const end = written.indexOf("</s>");
  return written.filter((_, t) => t !== (end < 0 ? written.length - 1 : end));
}

// Return a picture of the mask of a kind of attention; the one that is chosen has a frame.
function mask(kind, title, rows, columns, isVisible) {
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
  const isChosen = kind === chosen.kind;
  return element("figure", { class: isChosen ? "chosen" : null },
    element("figcaption", {}, title, isChosen ? element("small", {}, " (on the stage)") : ""),
    scrollBox(title, picture));
}
