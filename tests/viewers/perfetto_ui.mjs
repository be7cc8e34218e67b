// Drives the real Perfetto UI in a headless Chromium, one command at a time.
//
//   node perfetto_ui.mjs PLAYWRIGHT CHROMIUM < commands > answers
//
// PLAYWRIGHT is the folder of the package playwright-core, CHROMIUM the program. Each line of standard input is a
// JSON object, {"do": NAME, ...}, and is answered by one line: {"result": ...} or {"error": "..."}. The browser ends
// with standard input. Lengths on screen are CSS pixels. Nothing is reached but the server of the page that is open.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { createInterface } from "node:readline";

// A shared machine may be slow; a wait ends when what it waits for is there.
const PATIENCE_MS = 100_000;
// How long nothing may happen until the UI counts as idle. A slice's details come in several queries in turn.
const QUIET_MS = 400;
// Every host name leads nowhere, also for what Chromium itself would like to look up.
const FLAGS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"];
const DIALOG = "[role=dialog]";

const [playwright, chromium] = process.argv.slice(2);
const browser = await createRequire(import.meta.url)(playwright).chromium.launch({
  executablePath: chromium,
  args: FLAGS,
  timeout: PATIENCE_MS,
});
let page;

/** Waits until the UI has nothing left to do: no query, redraw or animation for a while. */
async function idle() {
  const since = await page.evaluate(() => performance.now());
  const quiet = ([begin, enough]) => {
    const { app } = window;
    const now = performance.now();
    const busy =
      app.isLoadingTrace ||
      app.trace.engine.numRequestsPending > 0 ||
      app.raf.hasPendingRedraws ||
      document.getAnimations().some((animation) => animation.playState === "running");
    if (busy) window.lastBusy = now;
    return now - Math.max(begin, window.lastBusy ?? 0) >= enough;
  };
  await page.waitForFunction(quiet, [since, QUIET_MS], { polling: 50 });
}

/** Takes the pointer to where it points at nothing. */
async function rest() {
  await page.mouse.move(150, 20);
  await idle();
}

const dialogs = () => page.locator(DIALOG).allInnerTexts();

/** The header of the group of tracks with exactly this name. */
function header(name) {
  const title = page.locator(".pf-track__title-popup").and(page.getByText(name, { exact: true }));
  return page.locator(".pf-track__header").filter({ has: title });
}

/** Waits until a trace is on screen, or a dialog is. */
async function settle() {
  // A function, not its text: the page may forbid itself `eval`.
  const settled = (dialog) => {
    const { app } = window;
    const shown = app.trace !== undefined && !app.isLoadingTrace && document.querySelector(".pf-track") !== null;
    return shown || document.querySelector(dialog) !== null;
  };
  await page.waitForFunction(settled, DIALOG);
  const told = await dialogs();
  if (told.length > 0) return { dialogs: told };
  await idle();
  const about = await page.evaluate(() => {
    const { traceTitle, importErrors, start, end } = window.app.trace.traceInfo;
    return { title: traceTitle, import_errors: Number(importErrors), start_ns: Number(start), end_ns: Number(end) };
  });
  return { ...about, dialogs: await dialogs() };
}

/** Where two pictures of one window differ within `box`: for each row of pixels the x of those that do. */
async function differences({ before, after, box }) {
  const find = async ([pictures, { x, y, width, height }]) => {
    const ratio = window.devicePixelRatio;
    // Whole pixels that lie within the box.
    const [left, top] = [Math.ceil(x * ratio), Math.ceil(y * ratio)];
    const [columns, rows] = [Math.floor((x + width) * ratio) - left, Math.floor((y + height) * ratio) - top];
    const read = async (text) => {
      const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
      const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
      const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
      context.drawImage(bitmap, 0, 0);
      return new Uint32Array(context.getImageData(left, top, columns, rows).data.buffer);
    };
    const [one, other] = await Promise.all(pictures.map(read));
    const changed = Array.from({ length: rows }, () => []);
    one.forEach((pixel, at) => {
      if (pixel !== other[at]) changed[Math.floor(at / columns)].push((left + (at % columns)) / ratio);
    });
    return changed;
  };
  const pictures = [before, after].map((path) => readFileSync(path).toString("base64"));
  return page.evaluate(find, [pictures, box]);
}

const COMMANDS = {
  /** Opens the UI in a window of its own. It may load a trace by itself. */
  async open({ url, width, height, scale }) {
    await page?.context().close();
    const context = await browser.newContext({
      viewport: { width, height },
      deviceScaleFactor: scale,
      serviceWorkers: "block",
    });
    context.setDefaultTimeout(PATIENCE_MS);
    page = await context.newPage();
    const { origin } = new URL(url);
    await page.route(
      (asked) => asked.protocol.startsWith("http") && asked.origin !== origin,
      (route) => route.abort(),
    );
    await page.goto(url);
    await page.waitForFunction(() => window.app !== undefined && document.querySelector("main") !== null);
  },

  /** Drags a file onto the UI and lets go. */
  async drop({ path }) {
    const drag = ([content, name]) => {
      const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([bytes], name));
      for (const type of ["dragenter", "dragover", "drop"])
        document.querySelector("main").dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer }));
    };
    await page.evaluate(drag, [readFileSync(path).toString("base64"), basename(path)]);
  },

  settle,

  /** Rows of one SQL statement. */
  query: ({ sql }) =>
    page.evaluate(async (statement) => {
      const answer = await window.app.trace.engine.query(statement);
      const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
      const rows = [];
      for (const row = answer.iter({}); row.valid(); row.next())
        rows.push(Object.fromEntries(answer.columns().map((column) => [column, plain(row.get(column))])));
      return rows;
    }, sql),

  /** Makes room: no sidebar, and times in milliseconds. */
  async tidy() {
    await page.evaluate(() => {
      if (window.app.sidebar.visible) window.app.sidebar.toggleVisibility();
      window.app.trace.timeline.timestampFormat = "milliseconds";
    });
    await idle();
  },

  /** Drags the panel of details to this height. */
  async resize({ height }) {
    const handle = await page.locator(".pf-split-panel__handle").boundingBox();
    const [x, y] = [handle.x + handle.width / 2, handle.y + handle.height / 2];
    await page.mouse.move(x, y);
    await page.mouse.down();
    await page.mouse.move(x, page.viewportSize().height - height, { steps: 4 });
    await page.mouse.up();
    await rest();
  },

  /** Clicks each of these groups of tracks open, unless it is. */
  async unfold({ names }) {
    for (const name of names) {
      const group = header(name);
      await group.scrollIntoViewIfNeeded();
      if (await group.locator(".pf-track__collapse-button", { hasText: "expand_less" }).count()) continue;
      await group.locator(".pf-track__collapse-button", { hasText: "expand_more" }).click();
      await group.locator(".pf-track__collapse-button", { hasText: "expand_less" }).waitFor();
    }
    await rest();
  },

  /** Scrolls a group of tracks to the top. */
  async scroll({ name }) {
    await header(name).evaluate((element) => element.closest(".pf-track").scrollIntoView({ block: "start" }));
    await idle();
  },

  /** Shows this span of the trace's time. */
  async zoom({ start_ns, end_ns }) {
    const show = ([start, end]) => window.app.trace.timeline.setViewportTime(BigInt(start), BigInt(end));
    await page.evaluate(show, [start_ns, end_ns]);
    await idle();
  },

  /** Selects a slice at which so many arrows start and none end; answers them as the panel of details lists them. */
  async select({ id, arrows }) {
    await page.evaluate((slice) => window.app.trace.selection.selectSqlEvent("slice", slice), id);
    await page.waitForFunction(
      ([slice, count]) => {
        const { selection, flows } = window.app.trace;
        return selection.selection.eventId === slice && flows.connectedFlows.length === count;
      },
      [id, arrows],
    );
    await page.getByText(`slice[${id}]`).waitFor();
    const rows = await page.waitForFunction((count) => {
      const sections = [...document.querySelectorAll(".pf-section")];
      const flows = sections.find((section) => section.querySelector("header").innerText === "Following Flows");
      const found = [...(flows?.querySelectorAll("tbody tr") ?? [])];
      return found.length === count && found;
    }, arrows);
    await idle();
    return rows.evaluate((found) => {
      const text = (cell) => {
        const copy = cell.cloneNode(true);
        copy.querySelectorAll(".pf-icon").forEach((icon) => icon.remove());
        return copy.textContent;
      };
      return found.map((row) => [...row.querySelectorAll("td")].map(text));
    });
  },

  /** Selects nothing, and folds the panel of details away. */
  async unselect() {
    await page.evaluate(() => window.app.trace.selection.clearSelection());
    const fold = (icon) => page.locator(".pf-split-panel__handle button", { hasText: icon });
    await fold("keyboard_arrow_down").click();
    await fold("keyboard_arrow_up").waitFor();
    await rest();
  },

  /** Brings a part of the panel of details into view. */
  async details({ title }) {
    await page.locator(".pf-section", { hasText: title }).evaluate((element) => element.scrollIntoView({ block: "start" }));
    await idle();
  },

  /** The tracks whose names a person can read now, from top to bottom, each with the group it stands in. */
  tracks: () =>
    page.evaluate(() => {
      const nameOf = (track) => track.querySelector(".pf-track__title-popup").textContent;
      const readable = (track) => {
        const { x, y, width, height } = track.querySelector(".pf-track__title").getBoundingClientRect();
        const inside = [x, y, x + width - 1, y + height - 1];
        if (inside[0] < 0 || inside[1] < 0 || inside[2] >= innerWidth || inside[3] >= innerHeight) return false;
        const top = document.elementFromPoint(x + Math.min(width, 20) / 2, y + height / 2);
        return top !== null && top.closest(".pf-track") === track;
      };
      const describe = (track) => {
        const canvas = track.querySelector(".pf-track__canvas").getBoundingClientRect();
        const group = track.parentElement.closest(".pf-track");
        return {
          name: nameOf(track),
          group: group && nameOf(group),
          folded: track.querySelector(".pf-track__header .pf-left-icon")?.innerText === "expand_more",
          x: canvas.x,
          y: canvas.y,
          width: canvas.width,
          height: canvas.height,
        };
      };
      return [...document.querySelectorAll(".pf-track")].filter(readable).map(describe);
    }),

  /** Keeps what is on screen as a PNG. */
  async picture({ path }) {
    await idle();
    await page.screenshot({ path });
  },

  differences,

  dialogs,
};

/** What `work` answers, unless it takes too long: not every call of playwright has a limit of its own. */
async function patiently(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${PATIENCE_MS} ms`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

const input = createInterface({ input: process.stdin });
input.on("close", () => browser.close()); // also while a command is under way
for await (const line of input) {
  const { do: name, ...given } = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await patiently(COMMANDS[name](given))) ?? null };
  } catch (error) {
    answer = { error: `${name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
