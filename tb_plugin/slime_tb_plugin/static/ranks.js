// Phases by rank, the view `ranks` of the report: a heat map of which only what is on screen is drawn, so that a thousand
// ranks scroll as ten do.

import { colour, element, fitted, saveButton } from "./dom.js";
import { ask } from "./server.js";
import { records, say, valueCell } from "./tables.js";

const ROW = 20;
const HEAD = 92;
const LEFT = 190;
const CELL = 84;
const COORDINATES = ["tp", "pp", "dp", "cp", "ep"];
/** Columns that say whose row it is. */
const WHO = new Set(["attempt", "role", "rank", "host", "process", "phase", ...COORDINATES]);

/** What the reader has chosen, which stays when the run grows. */
const kept = { sort: "name", top: 0, left: 0 };

/** A process with what it did in each phase. */
function processes(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row.process)) {
      found.set(row.process, {
        name: row.rank === null ? row.role : `${row.role} ${row.rank}`, who: row, cells: new Map(),
        where: COORDINATES.filter((word) => row[word] !== null).map((word) => word + row[word]).join(" "),
      });
    }
    found.get(row.process).cells.set(row.phase, row);
  }
  return [...found.values()];
}

const text = new Intl.Collator("en", { numeric: true });
const compare = (one, other) => (typeof one === "string" ? text.compare(one, other) : one - other);

export async function ranks(shown, signal) {
  const told = await ask("ranks", { run: shown.run, attempt: shown.attempt, rollout: shown.rollout }, signal);
  const order = processes(records(told.table)).sort((a, b) => compare(a.name, b.name) || a.who.process - b.who.process);
  order.forEach((each, at) => { each.first = at; });
  const { phases } = told;
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "Heat map of phases by rank; arrow keys move" });
  const space = element("div", { class: "space" });
  /** Around the chosen cell; the canvas need not be drawn again for it. */
  const frame = element("div", { class: "frame", hidden: true });
  frame.style.width = `${CELL - 1}px`;
  frame.style.height = `${ROW - 1}px`;
  const heat = element("div", { class: "heat" }, canvas, space, frame);
  const detail = element("div", { class: "detail", id: "rank-detail", role: "status" });
  let chosen = null;

  const lowest = (each, score) => Math.min(2, ...[...each.cells.values()].map((row) => row[score] ?? 2));
  const sorts = {
    name: (each) => each.first, host: (each) => each.who.host,
    "slowest beside its peers": (each) => lowest(each, "peer_score"), "slowest beside its past": (each) => lowest(each, "history_score"),
  };
  for (const word of COORDINATES) {
    if (order.some((each) => each.who[word] !== null)) sorts[word] = (each) => each.who[word] ?? Infinity;
  }
  for (const { name } of phases) sorts[`longest ${name}`] = (each) => -(each.cells.get(name)?.total_ms ?? -1);
  const picker = element("select", { id: "rank-sort", onchange: () => {
    kept.sort = picker.value;
    sort(picker.value);
    chosen = null;
    frame.hidden = true;
    detail.replaceChildren();
    draw();
  } },
    Object.keys(sorts).map((word) => element("option", { value: word }, word)));
  function sort(word) {
    order.sort((a, b) => compare(sorts[word](a), sorts[word](b)) || a.first - b.first);
  }

  /** Read again only when the theme may have changed: asking for styles costs more than drawing. */
  let paint = null;
  let waiting = 0;
  const draw = () => { waiting ||= requestAnimationFrame(() => { waiting = 0; drawNow(); }); };

  function drawNow() {
    const ratio = devicePixelRatio;
    const [width, height] = [heat.clientWidth, heat.clientHeight];
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    paint ??= { back: colour("back"), front: colour("front"), more: colour("train"), less: colour("generate") };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const [top, left] = [heat.scrollTop, heat.scrollLeft];
    const first = Math.floor(top / ROW);
    const last = Math.min(order.length, Math.ceil((top + height - HEAD) / ROW));
    for (let place = first; place < last; place += 1) {
      const y = HEAD + place * ROW - top;
      phases.forEach(({ name }, at) => {
        const x = LEFT + at * CELL - left;
        const row = order[place].cells.get(name);
        if (!row || x < LEFT - CELL || x > width) return;
        const away = Math.log2(Math.max(row.skew ?? 1, 0.01));
        pen.globalAlpha = Math.min(0.65, 0.06 + Math.abs(away) * 0.6);
        pen.fillStyle = away >= 0 ? paint.more : paint.less;
        pen.fillRect(x, y, CELL - 1, ROW - 1);
        pen.globalAlpha = 1;
        pen.fillStyle = paint.front;
        pen.fillText(say(row.total_ms, "ms"), x + 6, y + ROW / 2);
      });
    }
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, LEFT, height);
    pen.fillRect(0, 0, width, HEAD);
    pen.fillStyle = paint.front;
    for (let place = first; place < last; place += 1) {
      const y = HEAD + place * ROW - top + ROW / 2;
      if (y >= HEAD) pen.fillText(fitted(pen, `${order[place].name}  ${order[place].where}`, LEFT - 12), 6, y);
    }
    phases.forEach(({ name, depth }, at) => {
      const x = LEFT + at * CELL - left + 10;
      if (x < LEFT - 10 || x > width) return;
      pen.save();
      pen.translate(x, HEAD - 8);
      pen.rotate(-Math.PI / 5);
      pen.fillText(fitted(pen, "· ".repeat(depth) + name, 140), 0, 0);
      pen.restore();
    });
    canvas.dataset.drawn = String(Number(canvas.dataset.drawn ?? 0) + 1);
  }

  /** The frame lies above the names of ranks and phases, under which the cells go: it goes nowhere. */
  function placeFrame() {
    if (!chosen) return;
    const [x, y] = [LEFT + chosen.phase * CELL, HEAD + chosen.place * ROW];
    frame.hidden = x - heat.scrollLeft < LEFT || y - heat.scrollTop < HEAD;
    frame.style.transform = `translate(${x}px, ${y}px)`;
  }

  function choose(place, phase) {
    if (place < 0 || phase < 0 || place >= order.length || phase >= phases.length) return;
    if (chosen && chosen.place === place && chosen.phase === phase) return;
    chosen = { place, phase };
    const { name, who, where, cells } = order[place];
    const row = cells.get(phases[phase].name);
    const about = element("div", { class: "quiet" }, `host ${who.host}${where ? ` · ${where}` : ""}`);
    detail.replaceChildren(
      element("strong", {}, `${name} · ${phases[phase].name}: `),
      row ? element("table", { id: "rank-cell" }, element("tbody", {}, element("tr", {}, told.table.columns
        .filter((column) => !WHO.has(column.name) && row[column.name] !== null)
        .map((column) => [element("th", { title: column.how }, column.name.replaceAll("_", " ").replace(/ ms$/, "")),
          valueCell(column.name, row[column.name], column.unit)])))) : "did not run",
      about,
    );
    placeFrame();
  }

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return x < LEFT || y < HEAD ? null
      : [Math.floor((y - HEAD + heat.scrollTop) / ROW), Math.floor((x - LEFT + heat.scrollLeft) / CELL)];
  };
  canvas.addEventListener("mousemove", (event) => { const found = at(event); if (found) choose(...found); });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const from = chosen ?? { place: -move[0], phase: -move[1] };
    choose(Math.max(0, from.place + move[0]), Math.max(0, from.phase + move[1]));
    heat.scrollTop = Math.max(Math.min(heat.scrollTop, chosen.place * ROW), (chosen.place + 1) * ROW - heat.clientHeight + HEAD + 20);
    heat.scrollLeft = Math.max(Math.min(heat.scrollLeft, chosen.phase * CELL), (chosen.phase + 1) * CELL - heat.clientWidth + LEFT + 20);
  });
  heat.addEventListener("scroll", () => {
    Object.assign(kept, { top: heat.scrollTop, left: heat.scrollLeft });
    placeFrame();
    draw();
  }, { passive: true });
  if (kept.sort in sorts) {
    picker.value = kept.sort;
    sort(kept.sort);
  }
  const { top, left } = kept;
  requestAnimationFrame(() => heat.scrollTo(left, top));
  const resized = new ResizeObserver(draw);
  resized.observe(heat);
  signal.addEventListener("abort", () => resized.disconnect());
  space.style.height = `${HEAD + order.length * ROW}px`;
  space.style.width = `${LEFT + phases.length * CELL + 60}px`;
  return [
    element("h2", {}, `Ranks in rollout ${told.rollout}`),
    element("p", { class: "quiet" },
      "Time in each phase, summed over the rollout; a phase's time includes that of the phases in it (indented by dots). ",
      "Orange: longer than the median of its peers, blue: shorter. Host times."),
    element("div", { class: "bar" }, element("label", {}, "Sort by ", picker), saveButton(() => canvas, `ranks-${told.rollout}`)),
    detail,
    heat,
  ];
}
