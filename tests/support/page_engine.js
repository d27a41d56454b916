// node page_engine.js ENGINE.js PAGE.json: translate lines with the engine and the model of a page.
// PAGE.json: {head, low, high (as in the page), lines, width, search, ...}.
// search: alpha and max_extra. ids_only: only the ids of the lines. small: only the lines
// in small letters. and: only the lines, with this word for &. texts_of: the lines are lists of ids; their texts.
// explained: also what explainPass returns.
"use strict";
const fs = require("node:fs"), zlib = require("node:zlib");
const engine = require(process.argv[2]);
const request = JSON.parse(fs.readFileSync(process.argv[3], "utf8"));

async function translated(model, line) {
  const { width, search } = request, ids = engine.encodeText(model, line);
  const source = engine.encode(model, [...ids, model.config.eos_id]);
  const found = width > 1 ? await engine.beamSearch(model, source, width, ...search)
    : await engine.greedy(model, source, ...search);
  return { ids, found: found.ids, text: engine.decodeIds(model, found.ids), score: found.score,
    beam: found.beam, ...(request.explained ? explained(model, source, found.ids) : {}) };
}

function explained(model, source, target) {
  const pass = engine.explainPass(model, source, [...target, model.config.eos_id]);
  for (const tokens of [pass.vectors.embeddings, ...pass.vectors.source, ...pass.vectors.target])
    tokens.forEach((vector, i) => { tokens[i] = [...vector]; });
  return pass;
}

async function run() {
  const [low, high] = [request.low, request.high].map((text) => Buffer.from(text, "base64"));
  const model = engine.loadModel(request.head, low, zlib.inflateRawSync(high));
  const begun = performance.now(), results = [];
  for (const line of request.lines)
    if (request.texts_of) results.push(engine.decodeIds(model, line));
    else if (request.and) results.push(engine.withAnd(line, request.and));
    else if (request.small) results.push(engine.inSmallLetters(model, engine.normalise(line)));
    else if (request.ids_only) results.push({ ids: engine.encodeText(model, line) });
    else results.push(await translated(model, line));
  const tokens = results.reduce((sum, result) => sum + (result.found?.length ?? 0) + 1, 0);
  console.log(JSON.stringify({ results, milliseconds: (performance.now() - begun) / tokens }));
}

run();
