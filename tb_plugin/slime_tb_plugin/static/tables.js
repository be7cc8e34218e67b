// Tables as `slime-profiler report` makes them: columns that say their unit and how they were measured, rows of values.

import { duration, element, size } from "./dom.js";

/** So many rows are drawn at once. */
const ROWS = 200;
/** How many rows of each table the reader has asked for. */
const asked = new Map();

/** The rows of a table, each by name of column. */
export function records({ columns, rows }) {
  const names = columns.map((column) => column.name);
  return rows.map((row) => Object.fromEntries(row.map((value, at) => [names[at], value])));
}

const digits = (number, count) => String(Number(number.toPrecision(count)));

/** A value in words, by the unit of its column. */
export function say(value, unit) {
  if (value === null || value === undefined) return "–";
  if (value === true || value === false) return value ? "yes" : "no";
  if (unit === "ms") return duration(value * 1e6);
  if (unit === "ns") return duration(value);
  if (unit === "B") return size(value);
  if (unit === "GB/s") return `${digits(value, 3)} GB/s`;
  if (typeof value === "number" && unit) return digits(value, 3);
  return typeof value === "number" && !Number.isInteger(value) ? digits(value, 3) : String(value);
}

/** A cell that shows a value in words, and says the value itself on hover and to whoever reads the page by program. */
export function valueCell(name, value, unit) {
  const exact = typeof value === "number" && unit ? `${value} ${unit}` : typeof value === "string" ? value : null;
  return element("td", { "data-column": name, "data-value": JSON.stringify(value), title: exact, class: typeof value === "string" ? "words" : null },
    say(value, unit));
}

const tells = (value) => value !== null && value !== false && value !== 0;

/** The columns in which something stands, as in the text of the report. */
export const telling = (columns, rows) => columns.filter((column) => rows.some((row) => tells(row[column.name])));

/**
 * Rows of a report. `first` makes the first cell of a row, where it is to be more than its value; `describe` gives a row
 * attributes, `boxed` scrolls them in a box. Of many rows the first are drawn, and a button draws more.
 */
export function reportTable(columns, rows, { id, first = null, describe = () => ({}), boxed = false }) {
  const heads = columns.map(({ name, unit, how }) =>
    element("th", { scope: "col", title: `${how}${unit ? ` (${unit})` : ""}`, class: rows.some((row) => typeof row[name] === "string") ? "words" : null },
      name.replace(/_ms$/, "").replace(/_gb_s$/, " GB/s").replaceAll("_", " ")));
  const body = element("tbody");
  const draw = (row) => element("tr", describe(row), columns.map(({ name, unit }, at) => {
    const cell = valueCell(name, row[name], unit);
    if (at === 0 && first) cell.replaceChildren(...[first(row)].flat());
    return cell;
  }));
  const more = element("button", { type: "button", onclick: () => add(body.rows.length + ROWS) });
  function add(count) {
    asked.set(id, count);
    body.append(...rows.slice(body.rows.length, count).map(draw));
    const left = rows.length - body.rows.length;
    more.textContent = `Show ${Math.min(left, ROWS)} more of ${left}`;
    more.hidden = left === 0;
  }
  add(asked.get(id) ?? ROWS);
  return [element("div", { class: boxed ? "wide boxed" : "wide" }, element("table", { id }, element("thead", {}, element("tr", {}, heads)), body)), more];
}
