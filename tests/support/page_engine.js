// node page_engine.js ENGINE.js PAGE.json: translate lines with the engine and the model of a page.
// PAGE.json: {head, weights (base64 of the deflated numbers), lines, width, search, ...}.
// search: alpha and max_extra. ids_only: only the ids of the lines. parts_of: only the first part
// of each line that has more subwords than this.
"use strict";
const fs = require("node:fs"), zlib = require("node:zlib");
const engine = require(process.argv[2]);
const request = JSON.parse(fs.readFileSync(process.argv[3], "utf8"));
const { head, weights, lines, width, search, ids_only: idsOnly, parts_of: usual } = request;

async function run() {
  const bytes = zlib.inflateRawSync(Buffer.from(weights, "base64"));
  const model = engine.loadModel(head, new Uint8Array(bytes));
  const results = [];
  const begun = performance.now();
  let tokens = 0;
  for (const line of lines) {
    if (usual) { results.push(engine.partOf(model, line, usual)); continue; }
    const ids = engine.encodeText(model, line);
    if (idsOnly) { results.push({ ids }); continue; }
    const found = width > 1 ? await engine.beamSearch(model, ids, width, ...search)
      : await engine.greedy(model, ids, ...search);
    tokens += found.ids.length + 1;
    results.push({ ids, found: found.ids, text: engine.decodeIds(model, found.ids),
      score: found.score, logProbability: found.logProbability });
  }
  console.log(JSON.stringify({ results, milliseconds: (performance.now() - begun) / tokens }));
}

run();
