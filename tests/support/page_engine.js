// node page_engine.js ENGINE.js PAGE.json: translate lines with the engine and the model of a page.
// PAGE.json: {head, weights (base64 of the deflated numbers), lines, width, ids_only}.
"use strict";
const fs = require("node:fs"), zlib = require("node:zlib");
const engine = require(process.argv[2]);
const { head, weights, lines, width, ids_only: idsOnly } = JSON.parse(fs.readFileSync(process.argv[3], "utf8"));

async function run() {
  const bytes = zlib.inflateRawSync(Buffer.from(weights, "base64"));
  const model = engine.loadModel(head, new Uint8Array(bytes));
  const results = [];
  const begun = performance.now();
  let tokens = 0;
  for (const line of lines) {
    const ids = engine.encodeText(model, line);
    if (idsOnly) { results.push({ ids }); continue; }
    const found = width > 1 ? await engine.beamSearch(model, ids, width) : await engine.greedy(model, ids);
    tokens += found.ids.length + 1;
    results.push({ ids, found: found.ids, text: engine.decodeIds(model, found.ids), score: found.score,
      logProbability: found.logProbability });
  }
  console.log(JSON.stringify({ results, milliseconds: (performance.now() - begun) / tokens }));
}

run();
