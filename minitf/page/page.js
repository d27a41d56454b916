// The page: the stage, and beside it the view that is open.
"use strict";

// The views, in the order in which the sentence flows through the model.
const VIEWS = [
  ["words", "Tokens", showWords], ["vectors", "Vectors", showVectors],
  ["attention", "Attention", showAttention], ["heads", "Heads", showHeads],
  ...(hasModel ? [["hand", "One head by hand", showByHand]] : []),
  ["masks", "Masks", showMasks], ["network", "Feed-forward", showNetwork],
  ["steps", "Next word", showSteps], ["beam", "Beam", showBeam],
  ...(hasModel ? [["try", "Try something", showTry]] : []),
];
// What fills those that depend on the chosen attention, layer, head and token.
const OF_CHOSEN = VIEWS.filter(([id]) => ["attention", "heads", "hand", "masks"].includes(id))
  .map(([, , show]) => show);
let opener = "#play"; // a selector of what had the focus when a view was opened

// Fill a view again, and give the focus back to the element that had it. A view that is closed is
// filled when it is opened.
function update(show, focus) {
  const [id, title] = VIEWS.find((view) => view[2] === show);
  const section = document.getElementById(id);
  if (section.hidden) {
    section.isStale = true;
    return;
  }
  const scrolled = [...section.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  const open = [...section.querySelectorAll("details")].map((each) => each.open);
  section.isStale = false;
  section.replaceChildren(element("h2", { id: `${id}-title`, tabindex: -1 }, title));
  show(section);
  section.querySelectorAll("details").forEach((each, i) => { each.open = open[i] ?? false; });
  markScrolling();
  section.querySelectorAll(".scroll").forEach((box, i) => { box.scrollLeft = scrolled[i] ?? 0; });
  if (focus) document.getElementById(focus)?.focus();
}

// Open a view beside the stage, or with null, none.
function openView(id, takesFocus = true) {
  const focused = document.activeElement, panel = document.getElementById("panel");
  if (!focused?.closest("#panel")) opener = selectorOf(focused);
  chosen.view = id;
  panel.hidden = !id;
  for (const [each, , show] of VIEWS) {
    const section = document.getElementById(each);
    section.hidden = each !== id;
    document.getElementById(`open-${each}`).setAttribute("aria-pressed", String(each === id));
    if (each === id && section.isStale) update(show);
  }
  document.body.classList.toggle("beside", Boolean(id));
  markScrolling();
  buildStage();
  if (id) {
    panel.scrollTop = 0;
    if (id === "beam") scrollToStep(chosen.step);
    // On a telephone the view covers the lower part of the window: the stage goes to the upper one.
    // (Not by scrollIntoView, which would also scroll a page around this one.)
    if (getComputedStyle(panel).position === "fixed")
      scrollBy(0, document.getElementById("scene").getBoundingClientRect().top);
    if (takesFocus) document.getElementById(`${id}-title`).focus({ preventScroll: true });
  } else (document.querySelector(opener) ?? document.getElementById("play")).focus();
}

// Return what finds an element again when the stage has been built anew.
function selectorOf({ id, dataset: { part, token } }) {
  if (id) return `#${id}`;
  return part ? `[data-part="${part}"]` : token ? `.token[data-token="${token}"]` : "#play";
}

// Choose an attention; its layer and token are kept where it has them.
function chooseKind(kind) {
  if (chosen.kind === kind) return;
  chosen.kind = kind;
  chosen.layer = Math.min(chosen.layer, shown.weights[kind].length - 1);
  [chosen.reverse, chosen.head] = [false, -1];
  updateChosen();
}

// Choose the attention, the layer, the token and the step that the stage shows at this moment, for
// the view that is opened.
function chooseShown() {
  const now = momentNow(), told = focusOf(now);
  if (now.t !== undefined) chosen.step = now.t;
  if (told) {
    if (chosen.kind !== told.kind) {
      const layer = told.layer ?? shown.weights[told.kind].length - 1;
      Object.assign(chosen, { kind: told.kind, layer, head: -1 });
    }
    Object.assign(chosen, { reverse: false, row: told.row });
  }
  for (const show of [...OF_CHOSEN, showSteps]) update(show);
}

// Choose a token of the stage and show where it looks, or who looks at it.
function chooseToken(key) {
  const number = Number(key.slice(1)), isSource = key[0] === "s";
  if (isSource && chosen.kind === "decoder") chosen.kind = "source";
  if (!isSource && chosen.kind === "encoder") chosen.kind = "source";
  chosen.layer = Math.min(chosen.layer, shown.weights[chosen.kind].length - 1);
  chosen.reverse = isSource && chosen.kind === "source";
  chosen.row = number;
  for (const show of OF_CHOSEN) update(show);
  openView("attention");
  announce(document.getElementById("said").textContent);
}

// Fill the views that depend on the chosen attention, layer, head and token.
function updateChosen(focus) {
  for (const show of OF_CHOSEN) update(show);
  buildStage();
  if (focus) document.getElementById(focus)?.focus();
}

// Show a new translation in the stage and in all views but the one in which it was typed. What had
// the focus keeps it, or if it was a token, the chosen one gets it, or if it is gone, the title of
// its view.
function updateAll() {
  const focused = document.activeElement, section = focused?.closest("section");
  for (const [id, , show] of VIEWS) if (id !== "try") update(show);
  buildStage();
  if (!section || section.id === "try" || section.id === "stage") return;
  const id = focused.closest(".words") ? idOfChosen() : focused.id;
  (document.getElementById(id) ?? document.getElementById(`${section.id}-title`)).focus();
}

async function build() {
  shown = await storedTranslation();
  Object.assign(chosen, { layer: shown.weights.source.length - 1, row: farthestLooking() });
  stage.time = momentsOf(shown).length;
  const panel = element("aside", { id: "panel", "aria-label": "View", hidden: true },
    element("button", { type: "button", id: "close", "aria-label": "Close the view",
      onclick: () => openView(null) }, "\u00d7"),
    ...VIEWS.map(([id]) => element("section", { id, "aria-labelledby": `${id}-title`,
      hidden: true })));
  const theatre = element("section", { id: "stage", "aria-label": "The stage" });
  document.body.classList.toggle("translates", hasModel);
  document.getElementById("main").append(...(hasModel ? [sentenceForm()] : []),
    element("nav", { "aria-label": "Views" }, ...VIEWS.map(([id, title]) => element("button",
      { type: "button", id: `open-${id}`, "aria-pressed": "false",
        onclick: () => {
          if (chosen.view !== id) chooseShown();
          openView(chosen.view === id ? null : id);
        } }, title))),
    element("div", { class: "house" }, theatre, panel));
  for (const [id] of VIEWS) document.getElementById(id).isStale = true;
  showStage(theatre);
  buildStage();
  followPointer();
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chosen.view) openView(null);
  });
  addEventListener("resize", () => { buildStage(); markScrolling(); });
  addEventListener("beforeprint", printAll);
  addEventListener("afterprint", () => { showOnly(chosen.view); buildStage(); });
  addEventListener("hashchange", openLinked);
  openLinked();
  performance.mark("drawn");
  // The model is unpacked before it is needed, but after the stage is drawn.
  if (hasModel) setTimeout(refine);
}

// A link to the page may name a moment, a view, or both: page.html#source-9, #beam, #next-9&beam;
// or #turning, the moment at which the beam saves a sentence.
async function openLinked() {
  for (const part of location.hash.slice(1).split("&")) {
    const [name, number] = part.split("-");
    const place = placeOf(name, number === undefined ? undefined : Number(number));
    if (part === "turning" && canShowTurn()) await showTurn(false);
    if (VIEWS.some((view) => view[0] === part)) {
      chooseShown();
      openView(part, self === top); // a frame does not take the focus from the page around it
    } else if (place >= 0) goTo(place + 1);
  }
}

// Paper cannot be pressed: it has all views but the one to try something, below the stage.
function printAll() {
  for (const [id, , show] of VIEWS) {
    const section = document.getElementById(id);
    section.hidden = id === "try";
    if (section.isStale) update(show);
  }
  document.getElementById("panel").hidden = false;
}

function showOnly(view) {
  for (const [id] of VIEWS) document.getElementById(id).hidden = id !== view;
  document.getElementById("panel").hidden = !view;
}

// Replace the stored weights, which are rounded, by those that the model computes, unless the
// reader already translates, or only the first tokens are stored.
async function refine() {
  const stored = shown, note = document.getElementById("about"), about = note.textContent;
  if (!stored.isCut) note.append(" Weights are rounded until the page has computed them.");
  const model = await unpackModel();
  isSmoothed = model.config.label_smoothing > 0;
  if (busy || shown !== stored || stored.isCut) return;
  const [source, target] = data.ids;
  shown = { ...stored, ...explainPass(model, encode(model, source), target),
    ids: source.slice(0, -1), twins: null };
  note.textContent = about;
  updateAll();
  await compareWithGreedy();
}

build().catch((error) => {
  document.getElementById("main").textContent =
    `This page needs a browser of 2023 or newer (${error.message}).`;
});
