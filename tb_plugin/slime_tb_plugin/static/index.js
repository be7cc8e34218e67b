// The tab RL Timeline: pickers above, one of five views below. TensorBoard loads this module and calls `render`.

import { element, notice, size } from "./dom.js";
import { health } from "./health.js";
import { followRuns, followTheme, readLink, selectedRuns, writeLink } from "./host.js";
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
/** Who waits longer is told what for. */
const SOON_MS = 200;
/** Bytes of records from which on reading takes long. */
const LARGE = 20e6;

const shown = { view: "overview", run: null, attempt: null, rollout: null, sync: null, source: null, cut: null };
/** What belongs to one rollout only. */
const NOTHING_CHOSEN = { sync: null, source: null, cut: null };
/** A picker that nobody touched follows what is newest. */
const held = { run: false, attempt: false, rollout: false };
let runs = [];
/** Which of them TensorBoard lists as well, and has not filtered away. */
let listed = new Set();
let attempts = [];
/** Of the tables that are on screen; behind the run's own while it grows faster than it is read. */
let version = null;
/** Whether the timeline on screen was merged before the run's last records. */
let stale = false;
/** Whether the records on disk are newer than what could be read of them so far. */
let behind = false;
/** Says that the run which was asked for is not there. */
let absent = "";
let leaving = new AbortController();

const pickers = {};
const main = element("main", { tabindex: -1 });
const message = element("span", { class: "quiet", role: "status" });

function chooseIn(picker, value) {
  picker.value = value ?? "";
  picker.disabled = picker.options.length === 0;
}

function pick(name, value) {
  held[name] = true;
  absent = "";
  if (name === "run") Object.assign(shown, { run: value, attempt: null, rollout: null });
  if (name === "attempt") Object.assign(shown, { attempt: value, rollout: null });
  if (name === "rollout") shown.rollout = value;
  Object.assign(shown, NOTHING_CHOSEN);
  if (name === "run") refresh(true);
  else show();
}

function go(change) {
  if ("rollout" in change) held.rollout = true;
  Object.assign(shown, NOTHING_CHOSEN, change);
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

/** The run that is newest among those that TensorBoard has selected, else among all. */
const newest = () => runs.filter((run) => listed.has(run.key)).at(-1) ?? runs.at(-1);

/** Looks what there is, sets what is shown, and draws it where that is new. */
async function refresh(always = false) {
  try {
    const told = await ask("runs");
    runs = told.runs;
    listed = selectedRuns(runs.map((run) => run.key));
    if (runs.length === 0) {
      behind = false;
      tell(told.problems);
      empty(told);
      return;
    }
    const there = runs.some((run) => run.key === shown.run);
    if (!there || (!held.run && shown.run !== newest().key)) {
      absent = !there && shown.run !== null && held.run ? `There is no run ${shown.run} here. ` : "";
      Object.assign(shown, { run: newest().key, attempt: null, rollout: null });
    }
    const run = runs.find((entry) => entry.key === shown.run);
    const before = version;
    if (run.version !== version || always || attempts.run !== run.key) {
      const soon = main.dataset.view === undefined ? setTimeout(() => put([reading()]), SOON_MS) : null;
      const found = await ask("attempts", { run: run.key }).finally(() => clearTimeout(soon));
      attempts = found.attempts;
      attempts.run = run.key;
      version = found.version;
    }
    behind = run.version !== version && before === version;
    tell(told.problems);
    settle();
    const fresh = before !== version;
    if (always || main.dataset.view === undefined || main.dataset.view === "none" || main.dataset.view === "error") await show();
    else if (fresh && shown.view !== "timeline") await show(true);
    else if (fresh && before !== null) {
      stale = true;
      tell(told.problems);
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    if (main.dataset.done === undefined) failed(error);
    else message.textContent = error.message;
  }
}

function tell(problems) {
  const newer = stale ? "The run has newer records: choose the view again to merge them. " : behind ? "Newer records are being read. " : "";
  message.textContent = absent + newer + (problems.length ? `${problems.length} entries cannot be read: ${problems[0]}` : "");
}

/** What stands there while a large run is read first. */
function reading() {
  const run = runs.find((entry) => entry.key === shown.run);
  const large = run && run.bytes > LARGE ? ` This run has ${size(run.bytes)} of records; the first time takes about a minute for each 300 MB, ` +
    "later only files that have changed are read." : "";
  return element("p", { class: "quiet", role: "status" }, `Reading the run …${large}`);
}

function settle() {
  const known = attempts.find((entry) => String(entry.attempt) === String(shown.attempt));
  // A timeline on screen stays that of its rollout.
  const attempt = known && (held.attempt || shown.view === "timeline") ? known : attempts.at(-1);
  if (!attempt) {
    Object.assign(shown, { attempt: null, rollout: null });
  } else {
    if (attempt.attempt !== known?.attempt) shown.rollout = null;
    shown.attempt = attempt.attempt;
    const stays = (held.rollout || shown.view === "timeline") && attempt.rollouts.includes(shown.rollout);
    if (!stays) shown.rollout = attempt.rollouts.at(-1) ?? null;
  }
  const option = ({ key, run_id: id }) => element("option", { value: key }, id === key ? key : `${id} (${key})`);
  const [own, others] = [runs.filter((run) => listed.has(run.key)), runs.filter((run) => !listed.has(run.key))];
  pickers.run.replaceChildren(...(own.length && others.length
    ? [element("optgroup", { label: "Selected in TensorBoard" }, own.map(option)), element("optgroup", { label: "Others in the log folder" }, others.map(option))]
    : runs.map(option)));
  chooseIn(pickers.run, shown.run);
  pickers.attempt.replaceChildren(...attempts.map((entry) => element("option", { value: entry.attempt }, entry.attempt)));
  chooseIn(pickers.attempt, shown.attempt);
  pickers.rollout.replaceChildren(...(attempt?.rollouts ?? []).map((rollout) => element("option", { value: rollout }, rollout)));
  chooseIn(pickers.rollout, shown.rollout);
}

function put(children) {
  main.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined));
}

function empty(told) {
  main.className = "";
  main.dataset.view = "none";
  version = null;
  attempts = [];
  delete main.dataset.done;
  for (const picker of Object.values(pickers)) {
    picker.replaceChildren();
    chooseIn(picker, null);
  }
  put([notice("No run yet", `There is no run in ${told.log_folder || "the log folder"}. Start training with SLIME_PROFILER=timeline and ` +
    "give TensorBoard the folder of runs (out in the configuration) as --logdir. This page looks again every 5 seconds."),
  told.problems.map((text) => notice("Cannot be read", text, true))]);
}

function failed(error) {
  main.className = "";
  main.dataset.view = "error";
  delete main.dataset.done;
  put([notice("This cannot be shown", error.message, true),
    element("button", { type: "button", onclick: () => refresh(true) }, "Try again")]);
}

/** Draws what is chosen; `quietly` leaves what stands there until the new can take its place. */
async function show(quietly = false) {
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
  if (!quietly) delete main.dataset.done;
  if (shown.rollout === null && shown.view !== "health") {
    main.className = "";
    main.dataset.view = shown.view;
    put(nothingYet());
    return;
  }
  const soon = setTimeout(() => { if (!signal.aborted && !quietly) put([reading()]); }, SOON_MS);
  try {
    const children = await VIEWS[shown.view][1](shown, signal, go, (part) => { clearTimeout(soon); if (!signal.aborted) put(part); });
    clearTimeout(soon);
    if (signal.aborted) return;
    const top = main.scrollTop;
    put(children);
    if (quietly) main.scrollTop = top;
    main.dataset.view = shown.view;
    main.dataset.version = version;
    main.dataset.done = "yes";
  } catch (error) {
    clearTimeout(soon);
    if (signal.aborted) return;
    if (quietly) throw error;
    failed(error);
  }
}

function nothingYet() {
  const attempt = attempts.find((entry) => entry.attempt === shown.attempt);
  if (attempt?.processes) {
    return [notice("No rollout yet", `${attempt.processes} processes were seen in this attempt, and none has recorded a phase of a rollout. While ` +
      "training goes on, new rollouts appear here by themselves; Health says which processes were seen.")];
  }
  return [notice("No records yet", "Nothing was recorded in this attempt. See that its processes run with SLIME_PROFILER=timeline and that they can write " +
    "to this folder: slime-profiler doctor says what can be attached. Health says which files are damaged. This page looks again every 5 seconds.")];
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
