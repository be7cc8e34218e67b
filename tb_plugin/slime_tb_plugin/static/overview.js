// Where the time of each rollout went: the view `rollout` of the report.

import { drawn, duration, element, legend, saveButton } from "./dom.js";
import { ask } from "./server.js";
import { records, reportTable, say, telling } from "./tables.js";

const HEIGHT = 260;
const LEFT = 64;
const BOTTOM = 24;
/** Letters of a rollout's label, which stands below its bars; all of it is in their name. */
const LABEL = 10;
/** What the reader has chosen, which stays when the run grows. */
const kept = { role: "all" };
/** In the order in which they are stacked, each a column. */
const PARTS = ["generate", "eval", "train", "sync", "other", "idle"];

export async function overview(shown, signal, go) {
  const told = await ask("overview", { run: shown.run, attempt: shown.attempt }, signal);
  const all = records(told.table);
  const roles = [...new Set(all.map((row) => row.role))];
  const box = element("div");
  const picker = element("select", { id: "role", onchange: () => draw(picker.value) }, roles.map((role) => element("option", { value: role }, role)));
  function draw(role) {
    kept.role = role;
    const rows = all.filter((row) => row.role === role);
    const chart = chartOf(rows, shown, go);
    const open = (row) => go({ view: "ranks", rollout: row.rollout });
    const columns = telling(told.table.columns, rows).filter(({ name }) => name !== "attempt" && name !== "role");
    const odd = rows.filter((row) => row.is_outlier).map((row) => row.rollout);
    box.replaceChildren(
      element("p", { id: "outliers", class: odd.length ? "warn" : "quiet" },
        odd.length ? `⚠ Outliers, far from the median of the attempt: rollout ${odd.slice(0, 20).join(", ")}${odd.length > 20 ? " …" : ""}. `
          : "No rollout is an outlier. "),
      element("div", { class: "bar" }, legend(PARTS), saveButton(() => chart, `rollouts-${role}`)),
      element("div", { class: "wide" }, chart),
      ...reportTable(columns, rows, {
        id: "overview",
        first: (row) => [element("button", { type: "button", onclick: () => open(row) }, row.rollout), row.is_outlier ? " ⚠" : ""],
        describe: (row) => ({ class: row.rollout === shown.rollout ? "link chosen" : "link", onclick: () => open(row) }),
      }),
    );
  }
  picker.value = roles.includes(kept.role) ? kept.role : roles[0];
  draw(picker.value);
  return [
    element("h2", {}, "Overview"),
    element("p", { class: "quiet" },
      "What each rollout's wall time went to. The mark across a bar is the wall time, the dashed line the median of the rollouts before; parts that ",
      "run at once are drawn above one another, and so rise above the mark by their overlap. Host times; a column's name says on ",
      "hover how it was measured. Click a rollout for its ranks."),
    element("div", { class: "bar" }, element("label", {}, "Role ", picker)),
    box,
  ];
}

function shortened(rollout) {
  const label = String(rollout);
  return label.length > LABEL ? `${label.slice(0, LABEL - 1)}…` : label;
}

function chartOf(rows, shown, go) {
  const step = Math.max(6, Math.min(70, 1000 / Math.max(rows.length, 1)));
  const width = LEFT + step * rows.length + 10;
  const stack = (row) => PARTS.reduce((sum, part) => sum + row[`${part}_ms`], 0);
  const most = Math.max(1e-6, ...rows.map((row) => Math.max(row.wall_ms, stack(row))));
  const y = (ms) => HEIGHT - BOTTOM - (ms / most) * (HEIGHT - BOTTOM - 18);
  const x = (at) => LEFT + at * step;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group", "aria-label": "Parts of each rollout" });
  for (const share of [0, 0.5, 1]) {
    svg.append(
      drawn("line", { class: "grid", x1: LEFT - 4, x2: width, y1: y(most * share), y2: y(most * share) }),
      drawn("text", { x: LEFT - 8, y: y(most * share) + 4, "text-anchor": "end" }, duration(most * share * 1e6)),
    );
  }
  rows.forEach((row, at) => {
    let below = 0;
    const bars = PARTS.map((part) => {
      const from = below;
      below += row[`${part}_ms`];
      return drawn("rect", {
        x: x(at) + step * 0.1, width: step * 0.8, y: y(below), height: Math.max(0, y(from) - y(below)), fill: `var(--${part})`,
      }, drawn("title", {}, `rollout ${row.rollout}: ${part} ${say(row[`${part}_ms`], "ms")} of ${say(row.wall_ms, "ms")}`));
    });
    const open = () => go({ view: "ranks", rollout: row.rollout });
    svg.append(drawn("g", {
      role: "button", tabindex: 0, "aria-label": `rollout ${row.rollout}, ${say(row.wall_ms, "ms")}${row.is_outlier ? ", outlier" : ""}`,
      "data-rollout": row.rollout, onclick: open,
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") open(); },
    }, bars, drawn("line", { class: "mark", x1: x(at), x2: x(at) + step, y1: y(row.wall_ms), y2: y(row.wall_ms) }),
    row.is_outlier ? drawn("text", { class: "outlier", x: x(at) + step / 2, y: 12, "text-anchor": "middle" }, "⚠") : null));
    if (step >= 30 || at % Math.ceil(40 / step) === 0) {
      svg.append(drawn("text", { x: x(at) + step / 2, y: HEIGHT - 8, "text-anchor": "middle" },
        (row.rollout === shown.rollout ? "▸" : "") + shortened(row.rollout)));
    }
  });
  // `trend` is the wall time over the median of the rollouts before.
  const before = rows.flatMap((row, at) => (row.trend ? [`${x(at) + step / 2},${y(row.wall_ms / row.trend)}`] : []));
  if (before.length > 1) svg.append(drawn("polyline", { class: "trend", points: before.join(" ") }));
  return svg;
}
