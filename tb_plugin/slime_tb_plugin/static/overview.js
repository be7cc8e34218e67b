// Where the time of each rollout went.

import { drawn, duration, element, legend, saveButton, table, timeCell } from "./dom.js";
import { ask } from "./server.js";

const HEIGHT = 240;
const LEFT = 60;
const BOTTOM = 24;

export async function overview(shown, signal, go) {
  const told = await ask("overview", { run: shown.run, attempt: shown.attempt }, signal);
  const chart = draw(told, shown, go);
  const rows = told.rollouts.map((entry) => {
    const open = () => go({ view: "ranks", rollout: entry.rollout });
    return element("tr", { class: String(entry.rollout) === String(shown.rollout) ? "link chosen" : "link", onclick: open },
      element("td", {}, element("button", { type: "button", onclick: open }, String(entry.rollout)), entry.outlier ? " ⚠ outlier" : ""),
      timeCell(entry.wall_ns),
      told.parts.map((part) => timeCell(entry.parts_ns[part])));
  });
  return [
    element("h2", {}, "Overview"),
    element("p", { class: "quiet" },
      "How long each rollout took, from the first start to the last end of its records, and what ran meanwhile anywhere ",
      "in the run. Overlap: several parts at once. Idle: nothing that was recorded. Host times. ",
      told.median_wall_ns === null ? "" : `The median rollout takes ${duration(told.median_wall_ns)}. `,
      "Click a rollout for its ranks."),
    element("div", { class: "bar" }, legend(told.parts), saveButton(() => chart, "rollouts")),
    chart,
    table([["rollout", "words"], "wall", ...told.parts], rows, { id: "overview" }),
  ];
}

function draw(told, shown, go) {
  const count = told.rollouts.length;
  const step = Math.max(6, Math.min(70, 1000 / Math.max(count, 1)));
  const width = LEFT + step * count + 10;
  const most = Math.max(1, ...told.rollouts.map((entry) => entry.wall_ns));
  const y = (ns) => HEIGHT - BOTTOM - (ns / most) * (HEIGHT - BOTTOM - 14);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group", "aria-label": "Parts of each rollout" });
  for (const share of [0, 0.5, 1]) {
    svg.append(
      drawn("line", { class: "grid", x1: LEFT - 4, x2: width, y1: y(most * share), y2: y(most * share) }),
      drawn("text", { x: LEFT - 8, y: y(most * share) + 4, "text-anchor": "end" }, duration(Math.round(most * share))),
    );
  }
  told.rollouts.forEach((entry, at) => {
    let below = 0;
    const bars = told.parts.map((part) => {
      const from = below;
      below += entry.parts_ns[part];
      return drawn("rect", {
        x: LEFT + at * step + step * 0.1, width: step * 0.8, y: y(below), height: Math.max(0, y(from) - y(below)),
        fill: `var(--${part})`,
      }, drawn("title", {}, `rollout ${entry.rollout}: ${part} ${duration(entry.parts_ns[part])} of ${duration(entry.wall_ns)}`));
    });
    const open = () => go({ view: "ranks", rollout: entry.rollout });
    svg.append(drawn("g", {
      role: "button", tabindex: 0, "aria-label": `rollout ${entry.rollout}, ${duration(entry.wall_ns)}`,
      "data-rollout": entry.rollout, onclick: open,
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") open(); },
    }, bars));
    if (step >= 30 || at % Math.ceil(40 / step) === 0) {
      svg.append(drawn("text", { x: LEFT + at * step + step / 2, y: HEIGHT - 8, "text-anchor": "middle" },
        (String(entry.rollout) === String(shown.rollout) ? "▸" : "") + entry.rollout));
    }
  });
  return svg;
}
