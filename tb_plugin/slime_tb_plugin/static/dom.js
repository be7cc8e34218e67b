// Elements and words. Names from traces are only ever set as text, never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Text whose order on the screen is that of its letters: what turns others round, or is not seen, is spelled out. */
export const plain = (text) =>
  String(text).replace(/[^\P{Cc}\n\t]|\p{Bidi_Control}/gu, (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);

/** As much of a text as has room on a canvas, with an ellipsis where that is not all. */
export function fitted(pen, text, width) {
  const whole = plain(text);
  if (pen.measureText(whole).width <= width) return whole;
  let [fits, least, most] = ["", 0, Math.min(whole.length, Math.ceil(width))];
  while (least < most) {
    const half = Math.ceil((least + most) / 2);
    const part = `${whole.slice(0, half)}…`;
    if (pen.measureText(part).width <= width) [fits, least] = [part, half];
    else most = half - 1;
  }
  return fits;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined) node.append(child instanceof Node ? child : plain(child));
  }
  return node;
}

/** An HTML element: attributes, listeners as `onclick`, children that are nodes or text. */
export const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

/** An SVG element. */
export const drawn = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

/** Nanoseconds with three digits or so: 118 ms, 1.25 s. */
export function duration(ns) {
  if (ns === null || ns === undefined) return "–";
  if (ns === 0) return "0";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(Math.abs(ns) >= 100 * size ? 4 : 3))} ${unit}`;
  }
  return `${Number(ns.toPrecision(3))} ns`;
}

/** Bytes in units of 1000. */
export function size(bytes) {
  for (const [unit, step] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= step) return `${Number((bytes / step).toPrecision(3))} ${unit}`;
  }
  return `${bytes} B`;
}

/** A table: columns are names, or [name, "words"]; rows are lists of cells or texts. */
export function table(columns, rows, attributes = {}) {
  const heads = columns.map((column) => (Array.isArray(column) ? column : [column, null]));
  const cell = (content, at) =>
    content instanceof HTMLTableCellElement ? content : element("td", { class: heads[at][1] }, content ?? "–");
  const body = rows.map((row) =>
    row instanceof HTMLTableRowElement ? row : element("tr", {}, row.map((content, at) => cell(content, at))),
  );
  return element(
    "table",
    attributes,
    element("thead", {}, element("tr", {}, heads.map(([name, kind]) => element("th", { class: kind, scope: "col" }, name)))),
    element("tbody", {}, body),
  );
}

/** A box that says what is the matter, and what to do. */
export const notice = (title, text, isError = false) =>
  element("div", { class: isError ? "notice error" : "notice", role: isError ? "alert" : "status" },
    element("strong", {}, title), element("div", {}, text));

/** The colour of a part of the loop, as the page has it now. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Which colour is what; `paint` names the colour of each. */
export const legend = (names, paint = (name) => name) =>
  element("div", { class: "legend" }, names.map((name) => {
    const mark = element("i");
    mark.style.background = `var(--${paint(name)})`;
    return element("span", {}, mark, name);
  }));

function save(url, name) {
  element("a", { href: url, download: name }).click();
}

/** A button that saves an SVG or canvas as a picture. */
export function saveButton(find, name) {
  return element("button", { type: "button", onclick: () => {
    const node = find();
    if (node instanceof HTMLCanvasElement) {
      save(node.toDataURL("image/png"), `${name}.png`);
      return;
    }
    const copy = node.cloneNode(true);
    copy.setAttribute("xmlns", SVG);
    copy.prepend(drawn("style", {}, "text { fill: var(--front); font: 11px sans-serif; } .grid { stroke: var(--line); } " +
      ".mark { stroke: var(--front); stroke-width: 2; } .trend { fill: none; stroke: var(--accent); stroke-dasharray: 4 3; } " +
      ".outlier { fill: var(--overlap); }"));
    copy.style.background = colour("back");
    const text = new XMLSerializer().serializeToString(copy)
      .replaceAll(/var\(--([a-z]+)\)/g, (_, word) => colour(word));
    const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    save(url, `${name}.svg`);
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  } }, "Save picture");
}
