// Drives the tab RL Timeline in a real TensorBoard in a headless Chromium, one command at a time.
//
//   node tensorboard_ui.mjs PLAYWRIGHT CHROMIUM < commands > answers
//
// As perfetto_ui.mjs: each line of standard input is {"do": NAME, ...}, answered by {"result": ...} or {"error": "..."}.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const PATIENCE_MS = 120_000;
const FLAGS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"];
const TAB = "slime_rl_timeline";

const [playwright, chromium] = process.argv.slice(2);
const browser = await createRequire(import.meta.url)(playwright).chromium.launch({
  executablePath: chromium, args: FLAGS, timeout: PATIENCE_MS,
});
let page;
let told = [];
/** The frame of the tab. */
let tab;

async function findTab() {
  for (let tries = 0; tries < 600; tries += 1) {
    for (const frame of page.frames()) {
      if (await frame.$("#view-overview").catch(() => null)) return frame;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("the tab is not there");
}

/** The frame of the Perfetto UI, which has its address a moment after the tab has put it there. */
async function findPerfetto() {
  for (let tries = 0; tries < 600; tries += 1) {
    const found = page.frames().find((frame) => frame.url().includes("/perfetto/"));
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("the Perfetto UI is not there");
}

/** Runs in the tab. */
async function move([kind, count]) {
  const canvas = document.querySelector(".heat canvas");
  const heat = canvas.parentElement;
  const frame = () => new Promise(requestAnimationFrame);
  const state = () => canvas.dataset.drawn + heat.querySelector(".frame").style.transform;
  const taken = [];
  heat.scrollTop = 0;
  await frame();
  await frame();
  for (let at = 0; at < count; at += 1) {
    const before = state();
    const begun = performance.now();
    if (kind === "scroll") heat.scrollTop += 90;
    else {
      const { left, top } = canvas.getBoundingClientRect();
      const where = { bubbles: true, clientX: left + 200 + ((at * 97) % 700), clientY: top + 100 + ((at * 41) % 300) };
      canvas.dispatchEvent(new MouseEvent("mousemove", where));
    }
    for (let tries = 0; tries < 600 && state() === before; tries += 1) await frame();
    await frame();
    taken.push(performance.now() - begun);
  }
  return taken;
}

const COMMANDS = {
  /** Opens TensorBoard at a deep link into the tab. */
  async open({ url, link = "", dark = false, search = "" }) {
    await page?.context().close();
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, serviceWorkers: "block" });
    context.setDefaultTimeout(PATIENCE_MS);
    page = await context.newPage();
    told = [];
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) told.push(`${message.type()}: ${message.text()} ${message.location().url}`);
    });
    page.on("pageerror", (error) => told.push(`error: ${error.message}`));
    const { origin } = new URL(url);
    await page.route((asked) => asked.protocol.startsWith("http") && asked.origin !== origin, (route) => route.abort());
    await page.goto(`${url}?darkMode=${dark}${search}#${TAB}${link}`);
    tab = await findTab();
    await tab.waitForSelector("main[data-view]");
  },
  /** Opens a view and waits until it is drawn. */
  async view({ name }) {
    await tab.click(`#view-${name}`);
    await tab.waitForSelector(`main[data-view="${name}"][data-done]`);
    await tab.waitForTimeout(300);
  },
  async wait({ selector, attached = false }) {
    await tab.waitForSelector(selector, { state: attached ? "attached" : "visible" });
  },
  click: ({ selector }) => tab.click(selector),
  press: ({ key, selector = null }) => (selector ? tab.press(selector, key) : page.keyboard.press(key)),
  choose: ({ selector, value }) => tab.selectOption(selector, value),
  value: ({ selector }) => tab.inputValue(selector),
  options: ({ selector }) => tab.locator(`${selector} option`).allInnerTexts(),
  text: ({ selector = "body" }) => tab.innerText(selector),
  count: ({ selector }) => tab.locator(selector).count(),
  /** An attribute of all that match. */
  attributes: ({ selector, name }) => tab.locator(selector).evaluateAll((all, word) => all.map((one) => one.getAttribute(word)), name),
  /** The text of each cell of a table. */
  cells: ({ selector }) => tab.locator(`${selector} tbody tr`).evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText))),
  /** Each row of a table of a report: by column, the value that a cell holds and the text that it shows. */
  report: ({ selector }) => tab.locator(`${selector} tbody tr`).evaluateAll((rows) => rows.map((row) => Object.fromEntries(
    [...row.querySelectorAll("td[data-value]")].map((cell) => [cell.dataset.column, { value: JSON.parse(cell.dataset.value), text: cell.innerText.trim() }])))),
  /** Asks the Perfetto UI inside the tab. */
  async query({ sql }) {
    const frame = await findPerfetto();
    await frame.waitForFunction(() => window.app?.trace && !window.app.isLoadingTrace);
    return frame.evaluate(async (text) => {
      const result = await window.app.trace.engine.query(text);
      const names = result.columns();
      const rows = [];
      for (const it = result.iter({}); it.valid(); it.next()) {
        rows.push(Object.fromEntries(names.map((name) => [name, typeof it.get(name) === "bigint" ? Number(it.get(name)) : it.get(name)])));
      }
      return rows;
    }, sql);
  },
  /**
   * Of so many moves of the heat map, by scrolling or by hovering: `frames`, ms of each until it was drawn anew and a frame with it came
   * on screen, and `cpu`, ms of the page's own thread for one of them.
   */
  async paces({ what, moves }) {
    const inside = await page.context().newCDPSession(page);
    const busy = async () => (await inside.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value;
    await inside.send("Performance.enable", { timeDomain: "threadTicks" });
    const before = await busy();
    const frames = await tab.evaluate(move, [what, moves]);
    const cpu = (1000 * ((await busy()) - before)) / moves;
    await inside.detach();
    return { frames, cpu };
  },
  /** What the console of every frame has said since the page was opened. */
  console: () => told,
  address: () => page.url(),
  async picture({ path }) {
    await page.screenshot({ path });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  let answer;
  try {
    if (!Object.hasOwn(COMMANDS, name)) throw new Error("no such command");
    answer = { result: (await COMMANDS[name](rest)) ?? null };
  } catch (error) {
    answer = { error: `${name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
