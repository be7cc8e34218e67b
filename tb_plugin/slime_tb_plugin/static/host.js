// What TensorBoard's own page, in which this one is framed, tells and keeps: its theme, its address, its runs.

const NAME = "slime_rl_timeline";
const PREFIX = `p.${NAME}.`;

function outer() {
  try {
    void window.parent.document.body;
    return window.parent;
  } catch {
    return window;
  }
}

/** What the address says that is to be shown. */
export function readLink() {
  const { hash } = outer().location;
  const told = {};
  for (const [name, value] of new URLSearchParams(hash.slice(hash.indexOf("&") + 1))) {
    if (name.startsWith(PREFIX)) told[name.slice(PREFIX.length)] = value;
  }
  return told;
}

/** Make the address say what is shown, so that it can be kept and given on. */
export function writeLink(shown) {
  const { location, history } = outer();
  if (location.hash.slice(1).split("&")[0] !== NAME) return;
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(shown)) {
    if (value !== null && value !== undefined) words.set(PREFIX + name, value);
  }
  history.replaceState(history.state, "", `#${NAME}&${words}`);
}

/** Light or dark as TensorBoard is, else as the system is; `changed` is called when that changes. */
export function followTheme(changed) {
  const page = outer();
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const dark = page === window ? system.matches : page.document.body.classList.contains("dark-mode");
    if (document.documentElement.classList.toggle("dark", dark) !== apply.before) {
      apply.before = dark;
      changed();
    }
  };
  apply.before = null;
  if (page === window) system.addEventListener("change", apply);
  else new MutationObserver(apply).observe(page.document.body, { attributeFilter: ["class"] });
  apply();
}

/** TensorBoard's own runs: the folders in which it found event files. */
let tensorBoardRuns = [];

/**
 * Which of our runs TensorBoard lists and shows: those in whose folder one of its runs lies. It tells a plugin all its runs, and
 * not which are ticked; only the filter over its list of runs stands in the address, and is followed.
 */
export function selectedRuns(keys) {
  let filter = null;
  try {
    filter = new RegExp(new URLSearchParams(outer().location.search).get("runFilter") ?? "", "i");
  } catch { /* not yet a whole expression */ }
  const shown = tensorBoardRuns.filter((name) => !filter || filter.test(name));
  return new Set(keys.filter((key) => shown.some((name) => name === key || name.startsWith(`${key}/`))));
}

/** Calls `changed` when TensorBoard has other runs than before. */
export function followRuns(changed) {
  const channel = new MessageChannel();
  channel.port1.onmessage = ({ data }) => {
    let told;
    try {
      told = JSON.parse(data);
    } catch {
      return;
    }
    if (Array.isArray(told.payload)) {
      tensorBoardRuns = told.payload.map(String);
      changed();
    }
    if (!told.isReply) {
      channel.port1.postMessage(JSON.stringify({ type: told.type, id: told.id, payload: null, error: null, isReply: true }));
    }
  };
  window.parent.postMessage("experimental.bootstrap", location.origin, [channel.port2]);
  channel.port1.postMessage(
    JSON.stringify({ type: "experimental.GetRuns", id: 0, payload: null, error: null, isReply: false }),
  );
}
