// The ledger of weight synchronisations, and one of them bucket by bucket: the views `sync` and `bucket` of the report.

import { drawn, duration, element, legend, saveButton, size, table } from "./dom.js";
import { ask } from "./server.js";
import { records, reportTable, say, telling, valueCell } from "./tables.js";

const LEFT = 130;
const WIDTH = 1000;
const ROW = 22;
/** More rows and slices than these are not drawn. */
const MOST_ROWS = 200;
const MOST_SLICES = 4000;
const PAINT = {
  bucket_send: "sync", shard_write: "sync", delta_publish: "sync", engine_receive: "generate", engine_pull: "generate", engine_load: "eval",
  bucket_lock_wait: "overlap", bucket_ready: "train", weight_convert: "train", delta_encode: "train", tp_gather: "other", ep_gather: "other",
};
/** Times of the ledger that are no piece of what the source did. */
const NO_PIECE = new Set(["wall_ms", "source_ms", "receive_ms", "pull_ms", "load_ms", "named_ms", "exposed_ms", "hidden_ms", "bound_ms", "longest_pole_ms"]);

const paint = (phase) => PAINT[phase] ?? "idle";
const isChosen = (row, shown) => row.rollout === shown.rollout && row.source === shown.source && String(row.sync) === String(shown.sync);

export async function sync(shown, signal, go) {
  const query = { run: shown.run, attempt: shown.attempt };
  const told = await ask("sync", query, signal);
  const rows = records(told.table);
  const own = rows.filter((row) => row.rollout === shown.rollout);
  const longest = own.reduce((most, row) => ((row.wall_ms ?? 0) > (most?.wall_ms ?? -1) ? row : most), null);
  const chosen = own.find((row) => isChosen(row, shown)) ?? longest;
  const columns = telling(told.table.columns, rows).filter(({ name }) => name !== "attempt")
    .sort((one, other) => (other.name === "sync") - (one.name === "sync"));
  const open = (row) => go({ rollout: row.rollout, sync: row.sync, source: row.source });
  // Those of the rollout come first: of thousands the others are not drawn at once.
  const ordered = [...own, ...rows.filter((row) => row.rollout !== shown.rollout)];
  return [
    element("h2", {}, "Weight sync"),
    element("p", { class: "quiet" },
      "Every synchronisation of the attempt, those of the rollout first. Exposed: nothing else went on meanwhile; hidden: somebody was ",
      "generating or training. Host times; GB/s are 10⁹ bytes. A column's name says on hover how it was measured. Click a row for its buckets."),
    rows.length ? reportTable(columns, ordered, {
      id: "ledger",
      boxed: true,
      first: (row) => element("button", { type: "button", onclick: () => open(row) }, row.sync),
      describe: (row) => ({ class: row === chosen ? "link chosen" : "link", onclick: () => open(row) }),
    }) : element("p", {}, "No weight sync was recorded in this attempt. Its phases come from the trainer ranks that send weights."),
    chosen ? await detail(chosen, told.table.columns, query, signal) : null,
    !chosen && rows.length ? element("p", { class: "quiet" }, `Rollout ${shown.rollout} has none; choose a row.`) : null,
  ];
}

async function detail(row, columns, query, signal) {
  const told = await ask("buckets", { ...query, rollout: row.rollout, sync: row.sync, source: row.source }, signal);
  const buckets = records(told.table);
  const chart = draw(told, row);
  const pieces = columns.filter(({ name, unit }) => unit === "ms" && !NO_PIECE.has(name) && row[name]);
  return [
    element("h3", {}, `Sync ${row.sync} of ${row.source}`),
    row.longest_pole ? element("p", {}, "The longest piece is ", element("strong", {}, row.longest_pole), ` with ${say(row.longest_pole_ms, "ms")}. `,
      row.bound_ratio ? `The sync took ${say(row.bound_ratio, "ratio")} times its lower bound, ${size(row.bytes)} over ${say(row.bound_link_gb_s, "GB/s")} (${row.bound_basis}).` : "") : null,
    element("div", { class: "bar" }, legend([...new Set(told.phases.map(({ phase }) => (phase in PAINT ? phase : "others")))], paint),
      saveButton(() => chart, `sync-${row.sync}`)),
    chart,
    element("h3", {}, "What the source did"),
    table([["piece", "words"], "time", "of its weight_sync"], pieces.map(({ name, unit }) => [
      name.replace(/_ms$/, "").replaceAll("_", " "), valueCell(name, row[name], unit),
      row.source_ms ? `${((100 * row[name]) / row.source_ms).toFixed(1)} %` : "–",
    ]), { class: "pieces" }),
    element("h3", {}, "Buckets"),
    buckets.length ? reportTable(
      telling(told.table.columns, buckets).filter(({ name }) => !["attempt", "rollout", "sync", "source", "transport"].includes(name)),
      buckets, { id: "buckets", boxed: true }) : element("p", { class: "quiet" }, "No bucket was recorded."),
  ];
}

function draw(told, row) {
  const slices = told.phases.slice(0, MOST_SLICES);
  const every = [...new Set(slices.map((slice) => slice.row))];
  const names = every.slice(0, MOST_ROWS);
  const start = Math.min(0, ...slices.map((slice) => slice.start_ns));
  const end = Math.max((row.wall_ms ?? 0) * 1e6, 1, ...slices.map((slice) => slice.start_ns + slice.dur_ns));
  const x = (ns) => LEFT + ((ns - start) / (end - start)) * (WIDTH - LEFT - 10);
  const height = names.length * ROW + 30;
  const svg = drawn("svg", { id: "gantt", viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "aria-label": `Buckets of sync ${told.sync}` });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const at = start + (end - start) * share;
    svg.append(
      drawn("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height - 22 }),
      drawn("text", { x: x(at), y: height - 6, "text-anchor": share === 1 ? "end" : "middle" }, duration(Math.round(at))),
    );
  }
  const places = new Map(names.map((name, at) => [name, at]));
  names.forEach((name, at) => svg.append(drawn("text", { x: 4, y: at * ROW + 15 }, name)));
  for (const slice of slices) {
    if (!places.has(slice.row)) continue;
    svg.append(drawn("rect", {
      x: x(slice.start_ns), width: Math.max(1, x(slice.start_ns + slice.dur_ns) - x(slice.start_ns)),
      y: places.get(slice.row) * ROW + 3, height: ROW - 6, "data-phase": slice.phase, "data-ns": slice.dur_ns,
      fill: `var(--${paint(slice.phase)})`, stroke: "var(--back)", "stroke-width": 0.5,
    }, drawn("title", {}, [
      `${slice.row}: ${slice.phase}`, slice.bucket === null ? "" : ` of bucket ${slice.bucket}`,
      `, ${duration(slice.dur_ns)}`, slice.bytes === null ? "" : `, ${size(slice.bytes)}`,
    ].join(""))));
  }
  const left = told.phases.length - slices.length;
  if (left || every.length > names.length) {
    svg.append(drawn("text", { x: 4, y: height - 6 }, `${left ? `${left} phases` : `${every.length - names.length} rows`} more`));
  }
  return svg;
}
