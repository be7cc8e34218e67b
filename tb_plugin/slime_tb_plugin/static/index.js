// The tab RL Timeline: pickers above, one of five views below. TensorBoard loads this module and calls `render`.

import { element, notice } from "./dom.js";
import { health } from "./health.js";
import { followRuns, followTheme, readLink, writeLink } from "./host.js";
import { overview } from "./overview.js";
import { ranks } from "./ranks.js";
import { ask } from "./server.js";
import { sync } from "./sync.js";
import { timeline } from "./timeline.js";

const VIEWS = {
  overview: ["Overview", overview], ranks: ["Ranks", ranks], sync: ["Weight sync", sync],
  timeline: ["Timeline", timeline], health: ["Health", health],
};
/** How often the log folder is looked at for new runs and rollouts. */
const POLL_MS = 5000;

const shown = { view: "overview", run: null, attempt: null, rollout: null, cut: null };
/** A picker that nobody touched follows what is newest. */
const held = { run: false, attempt: false, rollout: false };
let runs = [];
let attempts = [];
let version = null;
/** Whether the timeline on screen was merged before the run's last records. */
let stale = false;
let leaving = new AbortController();

const pickers = {};
const main = element("main", { tabindex: -1 });
const message = element("span", { class: "quiet", role: "status" });

function options(picker, entries, value) {
  picker.replaceChildren(...entries.map(([key, text]) => element("option", { value: key }, text)));
  picker.value = value ?? "";
  picker.disabled = entries.length === 0;
}

function pick(name, value) {
  held[name] = true;
  if (name === "run") Object.assign(shown, { run: value, attempt: null, rollout: null });
  if (name === "attempt") Object.assign(shown, { attempt: value, rollout: null });
  if (name === "rollout") shown.rollout = value;
  shown.cut = null;
  if (name === "run") refresh(true);
  else show();
}

function go(change) {
  if ("rollout" in change) held.rollout = true;
  if (!("cut" in change)) shown.cut = null;
  Object.assign(shown, change);
  show();
}

function build() {
  const style = new URL("style.css", import.meta.url).href;
  document.head.append(element("link", { rel: "stylesheet", href: style }));
  document.documentElement.lang = "en";
  for (const name of ["run", "attempt", "rollout"]) {
    pickers[name] = element("select", { id: name, onchange: () => pick(name, pickers[name].value) });
  }
  const tabs = Object.entries(VIEWS).map(([view, [title]], at) =>
    element("button", { type: "button", role: "tab", id: `view-${view}`, title: `Key ${at + 1}`, onclick: () => go({ view }) }, title));
  document.body.replaceChildren(
    element("header", {},
      Object.entries(pickers).map(([name, picker]) => element("label", {}, name[0].toUpperCase() + name.slice(1), picker)),
      element("nav", { role: "tablist", "aria-label": "Views" }, tabs), message),
    main,
  );
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLSelectElement) return;
    const view = Object.keys(VIEWS)[Number(event.key) - 1];
    if (view) go({ view });
    if (event.key === "[" || event.key === "]") {
      const list = [...pickers.rollout.options].map((option) => option.value);
      const next = list[list.indexOf(pickers.rollout.value) + (event.key === "]" ? 1 : -1)];
      if (next !== undefined) pick("rollout", next);
    }
  });
}

/** Looks what there is, sets what is shown, and draws it where that is new. */
async function refresh(always = false) {
  let told;
  try {
    told = await ask("runs");
    runs = told.runs;
    tell(told.problems);
    if (runs.length === 0) {
      empty(told);
      return;
    }
    if (!runs.some((run) => run.key === shown.run)) {
      if (shown.run !== null && held.run) message.textContent = `There is no run ${shown.run} here.`;
      Object.assign(shown, { run: runs.at(-1).key, attempt: null, rollout: null });
    } else if (!held.run && shown.run !== runs.at(-1).key) {
      Object.assign(shown, { run: runs.at(-1).key, attempt: null, rollout: null });
    }
    const run = runs.find((entry) => entry.key === shown.run);
    const before = version;
    if (run.version !== version || always || attempts.run !== run.key) {
      attempts = (await ask("attempts", { run: run.key })).attempts;
      attempts.run = run.key;
      version = run.version;
    }
    settle();
    const fresh = before !== version;
    if (always || (fresh && shown.view !== "timeline") || main.dataset.view === undefined) await show();
    else if (fresh && before !== null) {
      stale = true;
      tell(told.problems);
    }
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  }
}

function tell(problems) {
  const newer = stale ? "The run has newer records: choose the view again to merge them. " : "";
  message.textContent = newer + (problems.length ? `${problems.length} entries cannot be read: ${problems[0]}` : "");
}

function settle() {
  const known = attempts.find((entry) => String(entry.attempt) === String(shown.attempt));
  const attempt = known ?? attempts.at(-1);
  if (!attempt) {
    Object.assign(shown, { attempt: null, rollout: null });
  } else {
    shown.attempt = attempt.attempt;
    const there = attempt.rollouts.find((rollout) => String(rollout) === String(shown.rollout));
    // A timeline on screen stays that of its rollout.
    shown.rollout = (held.rollout || shown.view === "timeline") && there !== undefined ? there : attempt.rollouts.at(-1) ?? null;
  }
  options(pickers.run, runs.map((run) => [run.key, run.run_id === run.key ? run.key : `${run.run_id} (${run.key})`]), shown.run);
  options(pickers.attempt, attempts.map((entry) => [entry.attempt, entry.attempt]), shown.attempt);
  options(pickers.rollout, (attempt?.rollouts ?? []).map((rollout) => [rollout, rollout]), shown.rollout);
}

function put(children) {
  main.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined));
}

function empty(told) {
  main.className = "";
  main.dataset.view = "none";
  version = null;
  attempts = [];
  for (const picker of Object.values(pickers)) options(picker, [], null);
  put([notice("No run yet", `There is no run in ${told.log_folder || "the log folder"}. Start training with SLIME_PROFILER=timeline and ` +
    "give TensorBoard the folder of runs (out in the configuration) as --logdir. This page looks again every 5 seconds."),
  told.problems.map((text) => notice("Cannot be read", text, true))]);
}

function failed(error) {
  main.className = "";
  main.dataset.view = "error";
  put([notice("This cannot be shown", error.message, true),
    element("button", { type: "button", onclick: () => refresh(true) }, "Try again")]);
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  if (!(shown.view in VIEWS)) shown.view = "overview";
  settle();
  for (const view of Object.keys(VIEWS)) {
    document.getElementById(`view-${view}`).setAttribute("aria-selected", String(view === shown.view));
  }
  stale = false;
  writeLink(shown);
  main.className = shown.view === "timeline" ? "filled" : "";
  delete main.dataset.done;
  if (shown.rollout === null && shown.view !== "health") {
    main.className = "";
    main.dataset.view = shown.view;
    put([notice("No rollout yet", "Nothing was recorded of a rollout in this attempt. While training goes on, new rollouts appear here by " +
      "themselves; Health says which processes were seen.")]);
    return;
  }
  const soon = setTimeout(() => { if (!signal.aborted) put([element("p", { class: "quiet", role: "status" }, "Reading the run …")]); }, 200);
  try {
    const children = await VIEWS[shown.view][1](shown, signal, go, (part) => { clearTimeout(soon); if (!signal.aborted) put(part); });
    clearTimeout(soon);
    if (signal.aborted) return;
    put(children);
    main.dataset.view = shown.view;
    main.dataset.done = "yes";
  } catch (error) {
    clearTimeout(soon);
    if (!signal.aborted) failed(error);
  }
}

export async function render() {
  build();
  const link = readLink();
  for (const name of Object.keys(shown)) {
    if (link[name] !== undefined) shown[name] = link[name];
    if (name in held) held[name] = link[name] !== undefined;
  }
  followTheme(() => { if (main.dataset.done && shown.view === "ranks") show(); });
  await refresh(true);
  followRuns(() => refresh());
  setInterval(() => { if (!document.hidden) refresh(); }, POLL_MS);
}
