// How far the numbers can be trusted: who is missing, what was lost, whose clock is assumed.

import { duration, element, notice, size, table } from "./dom.js";
import { ask } from "./server.js";

const words = (found) => Object.entries(found).map(([name, value]) => `${name} ${value}`).join(", ");

export async function health(shown, signal) {
  const told = await ask("health", { run: shown.run }, signal);
  const dropped = told.processes.filter((process) => Object.keys(process.dropped).length);
  const lists = [
    ["Missing", told.missing, "No record of these ranks was found. Where out is a folder of each node, copy all of them together."],
    ["Damaged or refused", told.damage, "What could be read of these files is in all numbers; the rest is not."],
    ["Files that are no source", told.ignored, "They are not read."],
  ].filter(([, found]) => found.length);
  return [
    element("h2", {}, "Health"),
    lists.length || dropped.length ? null : notice("Nothing is missing", "No rank is missing, no file is damaged, nothing was dropped."),
    lists.map(([title, found, advice]) => [
      element("h3", {}, title), element("p", { class: "quiet" }, advice),
      element("ul", {}, found.map((text) => element("li", {}, text))),
    ]),
    element("h3", {}, "Processes"),
    table(
      [["process", "words"], "attempt", ["host", "words"], "pid", ["clock", "words"], "clock error", ["ended", "words"], ["open phases", "words"],
        ["dropped", "words"], ["versions", "words"], "records"],
      told.processes.map((process) => [
        process.name, process.attempt, process.host, process.pid, process.clock || "–", duration(process.clock_error_ns), process.ending,
        Object.keys(process.open_phases).length ? words(process.open_phases) : "none", words(process.dropped) || "nothing", words(process.versions), size(process.bytes),
      ]),
      { id: "processes" },
    ),
  ];
}
