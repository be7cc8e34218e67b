// The ledger of weight synchronisations, and one of them bucket by bucket.

import { drawn, duration, element, saveButton, size, table, timeCell } from "./dom.js";
import { ask } from "./server.js";

const LEFT = 130;
const WIDTH = 1000;
const ROW = 22;
const PAINT = {
  bucket_send: "sync", engine_receive: "generate", engine_load: "eval", engine_pull: "generate", bucket_lock_wait: "overlap",
  bucket_ready: "train", weight_convert: "train", tp_gather: "other", ep_gather: "other", bucket_ack: "idle",
};

export async function sync(shown, signal, go) {
  const query = { run: shown.run, attempt: shown.attempt };
  const [all, one] = await Promise.all([
    ask("sync", query, signal),
    ask("sync", { ...query, rollout: shown.rollout }, signal),
  ]);
  const rows = all.syncs.map((entry) =>
    element("tr", {
      class: String(entry.rollout) === String(shown.rollout) ? "link chosen" : "link",
      onclick: () => entry.rollout !== null && go({ rollout: entry.rollout }),
    },
    element("td", {}, element("button", { type: "button" }, `${entry.sync}`)),
    [String(entry.rollout ?? "–"), entry.transport ?? "–", entry.weight_version ?? "–"].map((text) => element("td", {}, text)),
    element("td", { "data-bytes": entry.bytes, title: `${entry.bytes} B` }, size(entry.bytes)),
    [entry.buckets, entry.tensors].map((number) => element("td", {}, number)),
    [entry.wall_ns, entry.exposed_ns, entry.hidden_ns, entry.send_ns].map(timeCell),
    element("td", { "data-rate": entry.gb_per_s }, entry.gb_per_s === null ? "–" : Number(entry.gb_per_s.toPrecision(3)))));
  return [
    element("h2", {}, "Weight sync"),
    element("p", { class: "quiet" },
      "Every synchronisation of the attempt. Exposed: nobody was generating meanwhile; hidden: somebody was. ",
      "Send: while any bucket was being sent. Host times; GB/s are bytes over send."),
    all.syncs.length ? table(
      ["sync", "rollout", "transport", "version", "bytes", "buckets", "tensors", "wall", "exposed", "hidden", "send", "GB/s"],
      rows, { id: "ledger" })
      : element("p", {}, "No weight sync was recorded in this attempt. Its phases come from the trainer ranks that send weights."),
    one.syncs.map((entry) => detail(entry)),
    one.syncs.length === 0 && all.syncs.length ? element("p", { class: "quiet" }, `Rollout ${shown.rollout} has none; choose a row.`) : null,
  ];
}

function detail(entry) {
  const chart = draw(entry);
  const pieces = [...Object.entries(entry.pieces_ns), ["remainder", entry.remainder_ns]];
  return [
    element("h3", {}, `Sync ${entry.sync} of ${entry.source}`),
    element("div", { class: "bar" }, saveButton(() => chart, `sync-${entry.sync}`)),
    chart,
    table([["piece", "words"], "time", "of the sync"],
      pieces.map(([name, ns]) => [
        name, timeCell(ns), entry.wall_ns ? `${((100 * ns) / entry.wall_ns).toFixed(1)} %` : "–",
      ]), { class: "pieces" }),
  ];
}

function draw(entry) {
  const names = [...new Set(entry.slices.map((slice) => slice.row))];
  const start = Math.min(0, ...entry.slices.map((slice) => slice.start_ns));
  const end = Math.max(entry.wall_ns, 1, ...entry.slices.map((slice) => slice.start_ns + slice.dur_ns));
  const x = (ns) => LEFT + ((ns - start) / (end - start)) * (WIDTH - LEFT - 10);
  const height = names.length * ROW + 30;
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "aria-label": `Buckets of sync ${entry.sync}` });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const at = start + (end - start) * share;
    svg.append(
      drawn("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height - 22 }),
      drawn("text", { x: x(at), y: height - 6, "text-anchor": share === 1 ? "end" : "middle" }, duration(Math.round(at))),
    );
  }
  names.forEach((name, at) => svg.append(drawn("text", { x: 4, y: at * ROW + 15 }, name)));
  for (const slice of entry.slices) {
    svg.append(drawn("rect", {
      x: x(slice.start_ns), width: Math.max(1, x(slice.start_ns + slice.dur_ns) - x(slice.start_ns)),
      y: names.indexOf(slice.row) * ROW + 3, height: ROW - 6,
      fill: `var(--${PAINT[slice.phase] ?? "idle"})`, stroke: "var(--back)", "stroke-width": 0.5,
    }, drawn("title", {}, [
      `${slice.row}: ${slice.phase}`, slice.bucket === null ? "" : ` of bucket ${slice.bucket}`,
      `, ${duration(slice.dur_ns)}`, slice.bytes === null ? "" : `, ${size(slice.bytes)}`,
    ].join(""))));
  }
  return svg;
}
