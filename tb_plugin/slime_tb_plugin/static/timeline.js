// The merged trace of a rollout in the Perfetto UI that the server carries.

import { element, notice, size } from "./dom.js";
import { address, ask } from "./server.js";

/** The UI folds all processes at first; nobody opens a timeline to see that. */
const UNFOLD = encodeURIComponent(JSON.stringify([{ id: "dev.perfetto.ExpandTracksByRegex", args: ["phases"] }]));
const POLL_MS = 300;
const PING_MS = 200;

/** Gives a Perfetto page the trace as soon as it listens. */
function post(page, buffer, title, signal) {
  return new Promise((resolve) => {
    const listen = ({ data, source, origin }) => {
      if (data !== "PONG" || source !== page || origin !== location.origin) return;
      end();
      page.postMessage({ perfetto: { buffer, title, fileName: title, keepApiOpen: true } }, location.origin);
      resolve();
    };
    const timer = setInterval(() => page.postMessage("PING", location.origin), PING_MS);
    const end = () => {
      clearInterval(timer);
      window.removeEventListener("message", listen);
    };
    signal.addEventListener("abort", end);
    window.addEventListener("message", listen);
  });
}

const pause = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    reject(new DOMException("left", "AbortError"));
  });
});

export async function timeline(shown, signal, go, show) {
  const query = { run: shown.run, attempt: shown.attempt, rollout: shown.rollout, cut: shown.cut ? 1 : 0 };
  let told = await ask("merge/start", query, signal);
  while (told.state === "waiting" || told.state === "running") {
    const bar = element("progress", told.all_bytes ? { max: told.all_bytes, value: told.done_bytes } : {});
    show([element("div", { class: "bar" }, bar, told.state === "waiting" ? "Waiting for another merge" : `Merging rollout ${shown.rollout}`,
      told.all_bytes ? ` ${told.step}: ${size(told.done_bytes)} of ${size(told.all_bytes)}` : "")]);
    await pause(POLL_MS, signal);
    told = await ask("merge/progress", query, signal);
  }
  if (told.state !== "done") {
    return [notice("This rollout cannot be merged", told.error || "The run has changed meanwhile: choose the rollout again.", true)];
  }
  const about = `${size(told.bytes)} of text, ${size(told.packed_bytes)} packed`;
  const download = element("a", { class: "button", id: "download", href: address("merge/download", query), download: told.file },
    "Download");
  const slice = shown.cut ? null : element("button", { type: "button", id: "slice", onclick: () => go({ cut: "1" }) }, "Show a slice");
  if (told.too_large) {
    return [
      notice("This trace is large", `It has ${about}; a browser may run out of memory over it. Show a slice, which leaves out the ` +
        "shortest kernels, or download it and open it with slime-profiler open or trace_processor."),
      element("div", { class: "bar" }, slice, download),
    ];
  }
  const buffer = await (await fetch(address("merge/download", query), { signal })).arrayBuffer();
  const frame = element("iframe", { id: "perfetto", title: "Perfetto", src: address("perfetto/index.html") + `#!/viewer?mode=embedded&startupCommands=${UNFOLD}` });
  const outside = element("button", { type: "button", id: "outside", onclick: () => {
    const page = window.open(address("perfetto/index.html") + `#!/viewer?startupCommands=${UNFOLD}`, "_blank");
    if (page) post(page, buffer.slice(0), told.file, signal);
  } }, "Open in Perfetto");
  frame.addEventListener("load", () => post(frame.contentWindow, buffer.slice(0), told.file, signal), { once: true });
  const check = await fetch(address("perfetto/index.html"), { signal });
  return [
    element("div", { class: "bar" },
      element("strong", {}, `Rollout ${shown.rollout}`),
      element("span", { class: "quiet" }, about + (told.exact ? "" : "; the shortest slices are left out")),
      told.windows ? null : element("span", { class: "quiet", id: "no-traces" },
        "phases only: no trace of torch.profiler covers this rollout (profiler in the configuration asks for them)"),
      told.problems.length ? element("details", { id: "problems", class: "warn" },
        element("summary", {}, `⚠ ${told.problems.length} sources are not whole`), told.problems.map((text) => element("div", {}, text))) : null,
      check.ok ? outside : null, download, shown.cut ? element("button", { type: "button", onclick: () => go({ cut: null }) }, "Show all") : null),
    check.ok ? frame : notice("The Perfetto UI is not there", (await check.json()).error, true),
  ];
}
