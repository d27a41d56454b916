"use strict"; // The outline on a small screen, the colours, the search, and scrolling by keys.
const $ = (id) => document.getElementById(id);
const [menu, theme, query, found] = ["menu", "theme", "query", "found"].map($);

const outline = (open) =>
  menu.setAttribute("aria-expanded", document.body.classList.toggle("outlined", open));
menu.onclick = () => outline();
$("outline").onclick = (event) => { if (event.target.closest("a")) outline(false); };

const dark = () => (document.documentElement.dataset.theme ||
  (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  theme.textContent = dark() ? "Light" : "Dark";
}
let kept = "";
try { kept = localStorage.getItem("theme"); } catch { /* a page from a disk may keep nothing */ }
setTheme(kept);
theme.onclick = () => {
  setTheme(dark() ? "light" : "dark");
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* so be it */ }
};

// The index is a script, as a page from a disk may not read another file. It is large: wait until it is asked for.
query.onfocus = () => {
  query.onfocus = null;
  const script = document.createElement("script");
  script.src = "search.js";
  script.onload = search;
  document.head.append(script);
};
function search() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.hidden = !words.length;
  if (!words.length || typeof SECTIONS === "undefined") return;
  const rows = SECTIONS.map(([page, title, anchor, heading, text]) => {
    const head = `${title} ${heading}`.toLowerCase(), all = `${head} ${text.toLowerCase()}`;
    const score = words.every((word) => all.includes(word))
      ? 1 + words.filter((word) => head.includes(word)).length * 10 +
        Math.min(9, all.split(words[0]).length) : 0;
    return { page, title, anchor, heading, text, score };
  }).filter((row) => row.score).sort((a, b) => b.score - a.score);
  const list = document.createElement("ul");
  for (const row of rows.slice(0, 12)) {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = row.anchor ? `${row.page}#${row.anchor}` : row.page;
    link.textContent = row.heading ? `${row.title}: ${row.heading}` : row.title;
    const at = Math.max(0, row.text.toLowerCase().indexOf(words[0]) - 60);
    const part = document.createElement("p");
    part.textContent = (at ? "… " : "") + row.text.slice(at, at + 180) + " …";
    item.append(link, part);
    list.append(item);
  }
  const count = document.createElement("p");
  count.textContent = rows.length ? `${rows.length} sections` : "Nothing has all these words.";
  found.replaceChildren(count, list);
}
query.oninput = search;
found.onclick = (event) => { if (event.target.closest("a")) { query.value = ""; search(); } };
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!found.hidden) { query.value = ""; search(); }
  if (document.body.classList.contains("outlined")) { outline(false); menu.focus(); }
});

// A link to what is folded opens it.
function unfold() {
  const target = location.hash.length > 1 && $(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}
addEventListener("hashchange", unfold);
unfold();

// What scrolls can be scrolled by keys, and print shows what is folded, but for hints.
function reachable() {
  for (const box of document.querySelectorAll("pre, .scroll")) {
    const more = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (more) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("resize", reachable);
document.addEventListener("toggle", reachable, true);
reachable();
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open], .hint, .fold, .claims details)")];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => { for (const each of opened) each.open = false; });
