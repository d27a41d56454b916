"""python tests/support/page_times.py PAGE.html ...: how fast a page with a model is in Chromium.

Prints for each page: the seconds from opening it, in a browser that is running, until its views are
drawn, and until they show the first translation that it makes, with the search that it opens with;
and for greedy decoding, the milliseconds for each token.
"""

import sys
from pathlib import Path

from page_browser import report_of

# performance.now() counts from the moment at which the browser begins to open the page.
MEASURE = """
while (!shown) await new Promise((resolve) => setTimeout(resolve));
await translateAndShow(shown.line, data.search.width);
await new Promise(requestAnimationFrame);
const first = performance.now(), [drawn] = performance.getEntriesByName("drawn");
const model = await unpackModel(), ids = [...shown.ids, model.config.eos_id];
let tokens = 0;
const begun = performance.now();
while (performance.now() - begun < 3000)
  tokens += (await greedy(model, encode(model, ids))).ids.length + 1;
return { views: drawn.startTime, first, token: (performance.now() - begun) / tokens };
"""

if __name__ == "__main__":
    for name in sys.argv[1:]:
        times, _ = report_of(Path(name), MEASURE, running=True)
        print(
            f"{name}: views after {times['views'] / 1000:.2f} s, first translation after "
            f"{times['first'] / 1000:.2f} s; greedy: {times['token']:.1f} ms a token"
        )
