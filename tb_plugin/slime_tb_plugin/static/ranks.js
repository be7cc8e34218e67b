// Phases by rank: a heat map of which only what is on screen is drawn, so that a thousand ranks scroll as ten do.

import { colour, duration, element, saveButton } from "./dom.js";
import { ask } from "./server.js";

const ROW = 20;
const HEAD = 92;
const LEFT = 190;
const CELL = 84;

export async function ranks(shown, signal) {
  const told = await ask("ranks", { run: shown.run, attempt: shown.attempt, rollout: shown.rollout }, signal);
  const coordinates = [...new Set(told.columns.flatMap((column) => Object.keys(column.ranks)))].sort();
  const order = told.columns.map((_, at) => at);
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "Heat map of phases by rank; arrow keys move" });
  const space = element("div", { class: "space" });
  const heat = element("div", { class: "heat" }, canvas, space);
  const detail = element("div", { class: "detail", id: "rank-detail", role: "status" });
  let chosen = null;

  const sorts = { name: (at) => at, host: (at) => told.columns[at].hosts.join() };
  for (const word of coordinates) sorts[word] = (at) => told.columns[at].ranks[word] ?? Infinity;
  for (const row of told.rows) sorts[`longest ${row.phase}`] = (at) => -(row.total_ns[at] ?? -1);
  const picker = element("select", { id: "rank-sort", onchange: () => { sort(picker.value); draw(); } },
    Object.keys(sorts).map((word) => element("option", { value: word }, word)));
  function sort(word) {
    order.sort((a, b) => {
      const [one, other] = [sorts[word](a), sorts[word](b)];
      return one < other ? -1 : one > other ? 1 : a - b;
    });
  }

  function draw() {
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
    const paint = { back: colour("back"), front: colour("front"), line: colour("line"), more: colour("train"), less: colour("generate") };
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
      told.rows.forEach((row, at) => {
        const x = LEFT + at * CELL - left;
        const ns = row.total_ns[order[place]];
        if (ns === null || x < LEFT - CELL || x > width) return;
        const away = Math.log2(Math.max(row.ratio[order[place]] ?? 1, 0.01));
        pen.globalAlpha = Math.min(0.65, 0.06 + Math.abs(away) * 0.6);
        pen.fillStyle = away >= 0 ? paint.more : paint.less;
        pen.fillRect(x, y, CELL - 1, ROW - 1);
        pen.globalAlpha = 1;
        pen.fillStyle = paint.front;
        pen.fillText(duration(ns), x + 6, y + ROW / 2);
      });
    }
    if (chosen) {
      pen.strokeStyle = paint.front;
      pen.lineWidth = 2;
      pen.strokeRect(LEFT + chosen.phase * CELL - left, HEAD + chosen.place * ROW - top, CELL - 1, ROW - 1);
    }
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, LEFT, height);
    pen.fillRect(0, 0, width, HEAD);
    pen.fillStyle = paint.front;
    for (let place = first; place < last; place += 1) {
      const y = HEAD + place * ROW - top + ROW / 2;
      if (y < HEAD) continue;
      const column = told.columns[order[place]];
      const where = coordinates.filter((word) => word in column.ranks).map((word) => word + column.ranks[word]).join(" ");
      pen.fillText(`${column.name}  ${where}`, 6, y, LEFT - 12);
    }
    told.rows.forEach((row, at) => {
      const x = LEFT + at * CELL - left + 10;
      if (x < LEFT - 10) return;
      pen.save();
      pen.translate(x, HEAD - 8);
      pen.rotate(-Math.PI / 5);
      pen.fillText("· ".repeat(row.depth) + row.phase, 0, 0, 140);
      pen.restore();
    });
    space.style.height = `${HEAD + order.length * ROW}px`;
    space.style.width = `${LEFT + told.rows.length * CELL + 60}px`;
  }

  function choose(place, phase) {
    if (place < 0 || phase < 0 || place >= order.length || phase >= told.rows.length) return;
    chosen = { place, phase };
    const column = told.columns[order[place]];
    const row = told.rows[phase];
    const at = order[place];
    const ns = row.total_ns[at];
    const where = Object.entries(column.ranks).map(([word, value]) => word + value).join(" ");
    const median = row.median_ns[column.role ?? "unknown"];
    detail.replaceChildren(
      element("strong", {}, `${column.name} · ${row.phase}: `),
      ns === null ? "did not run" : element("span", { id: "rank-cell", "data-ns": ns, "data-phase": row.phase, "data-column": column.name },
        `${duration(ns)} in ${row.count[at]}×`),
      ns === null ? "" : `, ${row.ratio[at] ?? "–"}× the median of its role (${duration(median)})`,
      element("div", { class: "quiet" }, `host ${column.hosts.join(", ")}${where ? ` · ${where}` : ""}`),
    );
    draw();
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
  heat.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(heat);
  return [
    element("h2", {}, `Ranks in rollout ${told.rollout}`),
    element("p", { class: "quiet" },
      "Time in each phase, summed over the rollout; a phase's time includes that of the phases in it (indented by dots). ",
      "Orange: longer than the median of the role, blue: shorter. Host times."),
    element("div", { class: "bar" }, element("label", {}, "Sort by ", picker), saveButton(() => canvas, `ranks-${told.rollout}`)),
    detail,
    heat,
  ];
}
