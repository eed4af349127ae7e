// Draws the model folded into layers, as dlc/html/graph.py draws graphs; a box unfolds into the nodes of its layer.
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("folding").textContent);
  const place = document.querySelector("#folded .graph");
  const [W, H] = data.box, GAP = data.gap, ROW = data.row, SVG = "http://www.w3.org/2000/svg";
  const nodes = data.nodes.map(([op, name, title, reads, layers]) => ({ op, name, title, reads, layer: layers[0] }));
  const members = new Map();
  nodes.forEach((n, k) => {
    if (n.layer !== undefined) members.set(n.layer, [...(members.get(n.layer) || []), k]);
  });
  const unfolded = new Set();

  const key = (k) => (nodes[k].layer === undefined || unfolded.has(nodes[k].layer) ? "n" + k : "l" + nodes[k].layer);

  function boxes() {
    const found = new Map();
    nodes.forEach((n, k) => {
      const id = key(k);
      if (!found.has(id)) found.set(id, { id, node: k, layer: n.layer, folded: id[0] === "l", reads: new Set() });
      n.reads.forEach((x) => { if (key(x) !== id) found.get(id).reads.add(key(x)); });
    });
    return found;
  }

  // A layer may compute a node again that another one gives, so folded graphs may have cycles: these are cut.
  function depths(found) {
    const depth = new Map(), open = new Set();
    const of = (start) => {
      const stack = [[start, [...found.get(start).reads]]];
      open.add(start);
      while (stack.length) {
        const [id, left] = stack[stack.length - 1];
        const next = left.pop();
        if (next === undefined) {
          const read = [...found.get(id).reads].filter((x) => depth.has(x)).map((x) => depth.get(x));
          depth.set(id, 1 + Math.max(-1, ...read));
          stack.pop();
        } else if (!depth.has(next) && !open.has(next)) {
          open.add(next);
          stack.push([next, [...found.get(next).reads]]);
        }
      }
    };
    found.forEach((_, id) => { if (!depth.has(id)) of(id); });
    return depth;
  }

  function rows(found) {
    const depth = depths(found), first = new Map(), byRow = new Map(), column = new Map();
    found.forEach((b, id) => b.reads.forEach((x) => first.set(x, Math.min(first.get(x) ?? Infinity, depth.get(id)))));
    found.forEach((b, id) => {
      const at = !b.reads.size && first.has(id) ? first.get(id) - 1 : depth.get(id);
      byRow.set(at, [...(byRow.get(at) || []), b]);
    });
    const drawn = [];
    let count = 0;
    for (const at of [...byRow.keys()].sort((a, b) => a - b)) {
      const row = byRow.get(at);
      if (count && count + row.length > data.drawn) break;
      const middle = (b) => {
        const known = [...b.reads].filter((x) => column.has(x)).map((x) => column.get(x));
        return known.length ? known.reduce((a, c) => a + c, 0) / known.length : 0;
      };
      row.sort((a, b) => middle(a) - middle(b));
      row.forEach((b, k) => column.set(b.id, k - row.length / 2));
      drawn.push(row);
      count += row.length;
    }
    return drawn;
  }

  function element(name, attributes, parent, text) {
    const made = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([k, v]) => made.setAttribute(k, v));
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  function toggle(layer) {
    if (!unfolded.delete(layer)) unfolded.add(layer);
    draw();
    const again = place.querySelector(`[data-layer="${layer}"]`);
    if (again) again.focus({ preventScroll: true });
  }

  function drawBox(b, x, y, svg) {
    const n = nodes[b.node], many = b.layer === undefined ? [] : members.get(b.layer);
    const group = element("g", {}, svg);
    const target = b.layer === undefined ? group
      : element("a", { href: `#${data.prefix}layer-${b.layer}` }, group);
    const title = b.folded ? many.map((k) => nodes[k].title).join("\n\n") : n.title;
    element("title", {}, target, title);
    element("rect", { x, y, width: W, height: H, rx: 5, class: n.op.startsWith("input") ? "box input" : "box" }, target);
    const text = { x: x + W / 2, "text-anchor": "middle", class: "small" };
    const ops = [...new Set(many.map((k) => nodes[k].op))].join(", ");
    const cut = (s) => (s.length <= 24 ? s : s.slice(0, 23) + "…");
    element("text", { ...text, y: y + 19 }, target, b.folded ? cut(ops) : n.op);
    element("text", { ...text, y: y + 37 }, target, b.folded ? `layer ${b.layer}` : n.name);
    if (many.length < 2 || many[0] !== b.node) return;
    const button = element("g", { role: "button", tabindex: 0, "data-layer": b.layer, "aria-expanded": !b.folded,
      "aria-label": `layer ${b.layer}: ${many.length} nodes`, style: "cursor: pointer" }, group);
    element("rect", { x: x + W - 12, y: y - 10, width: 22, height: 22, rx: 4, class: "box" }, button);
    element("text", { x: x + W - 1, y: y + 6, "text-anchor": "middle" }, button, b.folded ? "+" : "−");
    button.addEventListener("click", () => toggle(b.layer));
    button.addEventListener("keydown", (e) => {
      if (e.key === "Enter" || e.key === " ") { e.preventDefault(); toggle(b.layer); }
    });
  }

  function draw() {
    const found = boxes(), drawn = rows(found), places = new Map();
    const widest = Math.max(1, ...drawn.map((r) => r.length));
    const width = widest * (W + GAP) + GAP, height = drawn.length * ROW + GAP;
    drawn.forEach((row, r) => row.forEach((b, k) => {
      places.set(b.id, [(width - row.length * (W + GAP) + GAP) / 2 + k * (W + GAP), GAP + r * ROW]);
    }));
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "The model, folded into layers");
    svg.style.width = `${width}px`;
    drawn.flat().forEach((b) => b.reads.forEach((x) => {
      if (!places.has(x)) return;
      const [a, t] = places.get(x), [c, d] = places.get(b.id), from = t + H, bend = Math.max((d - from) / 2, ROW / 4);
      element("path", { class: "wire", d: `M${a + W / 2} ${from}C${a + W / 2} ${from + bend} ${c + W / 2} ${d - bend} `
        + `${c + W / 2} ${d}` }, svg);
    }));
    drawn.flat().forEach((b) => drawBox(b, ...places.get(b.id), svg));
    place.replaceChildren(svg);
  }

  document.getElementById("unfold").addEventListener("click", () => {
    members.forEach((_, layer) => unfolded.add(layer));
    draw();
  });
  document.getElementById("fold").addEventListener("click", () => { unfolded.clear(); draw(); });
  document.getElementById("folded").hidden = false;
  document.querySelectorAll("details.drawn").forEach((d) => d.removeAttribute("open"));
  draw();
})();
