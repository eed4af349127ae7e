// What a reader would find wrong with a page: arguments are the names of checks; gives a list of texts, empty if all is well.
const wrong = [];
const name = (e) => `${e.tagName}${e.id ? "#" + e.id : ""}.${e.getAttribute("class") || ""}`;

function channel(c) {
  c /= 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}
function luminance(colour) {
  const [r, g, b, a] = colour.match(/[\d.]+/g).map(Number);
  if (a === 0) return null;
  return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
}
// WCAG 2.2, 1.4.3
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

const rects = new Map();
function rectsOf(svg) {
  if (!rects.has(svg)) {
    rects.set(svg, [...svg.querySelectorAll("rect")].map((r) => [r.getBBox(), getComputedStyle(r).fill]));
  }
  return rects.get(svg);
}
function behind(e) {
  const svg = e.closest("svg");
  if (svg) {
    const box = e.getBBox(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    const over = rectsOf(svg).filter(([b]) => b.x <= x && x <= b.x + b.width && b.y <= y && y <= b.y + b.height);
    if (over.length) return luminance(over[over.length - 1][1]);
    e = svg;
  }
  for (; e; e = e.parentElement) {
    const found = luminance(getComputedStyle(e).backgroundColor);
    if (found !== null) return found;
  }
  return 1;
}

document.querySelectorAll("details").forEach((d) => { d.open = true; });
const root = document.documentElement;
if (root.scrollWidth > root.clientWidth) {
  const widest = [...document.body.querySelectorAll("*")].filter((e) => !e.closest(".scroll,.tall")
    && e.getBoundingClientRect().right > root.clientWidth + 0.5 && e.getBoundingClientRect().left >= 0);
  wrong.push(`${root.scrollWidth} > ${root.clientWidth}: ${widest.slice(0, 5).map(name)}`);
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
for (let t = walker.nextNode(); t; t = walker.nextNode()) {
  const e = t.parentElement;
  if (!t.data.trim() || ["SCRIPT", "STYLE", "title"].includes(e.tagName) || !e.checkVisibility()) continue;
  const style = getComputedStyle(e), colour = luminance(e.closest("svg") ? style.fill : style.color);
  const found = contrast(colour, behind(e));
  seen += 1;
  if (found < 4.5) wrong.push(`contrast ${found.toFixed(2)}: ${name(e)} "${t.data.trim().slice(0, 30)}"`);
}
if (seen < 20) wrong.push(`only ${seen} texts`);
const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
if (new Set(ids).size !== ids.length) wrong.push("ids that occur twice");
document.querySelectorAll("a").forEach((a) => {
  const to = a.getAttribute("href");
  if (to.startsWith("#") && !document.getElementById(to.slice(1))) wrong.push(`${to} leads nowhere`);
});
document.querySelectorAll("table").forEach((t) => {
  if (!t.caption || !t.caption.textContent.trim()) wrong.push(`no caption: ${name(t)}`);
  if ([...t.querySelectorAll("th")].some((h) => !h.scope)) wrong.push("a heading without scope");
});
document.querySelectorAll("[role], nav").forEach((e) => {
  const label = e.getAttribute("aria-label") || e.getAttribute("aria-labelledby");
  if (!label || !label.trim()) wrong.push(`no label: ${name(e)}`);
});
document.querySelectorAll(".scroll, .tall").forEach((e) => {
  if (e.tabIndex !== 0) wrong.push(`keyboards cannot scroll ${name(e)}`);
});
for (const landmark of ["header", "main", "h1"]) {
  if (document.querySelectorAll(landmark).length !== 1) wrong.push(`not one ${landmark}`);
}
let before = 0;
document.querySelectorAll("h1,h2,h3,h4").forEach((h) => {
  const level = Number(h.tagName[1]);
  if (level > before + 1) wrong.push(`h${level} after h${before}`);
  before = level;
});
if (performance.getEntriesByType("resource").length) wrong.push("something was loaded");
if (window.hacked !== undefined) wrong.push("a name of the model ran");
return [...new Set(wrong)].slice(0, 20);
