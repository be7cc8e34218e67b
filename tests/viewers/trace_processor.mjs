// Asks Perfetto's own trace_processor about traces, without a browser.
//
//   node trace_processor.mjs DIST TRACE... < statements.json
//
// DIST is a folder of the Perfetto UI's files (engine_bundle.js and its .wasm). Standard input is a JSON list
// of SQL statements. Standard output is a line for each trace, a JSON object: `results`, a {columns, rows} for each
// statement, in order; or `error`, the reason why the trace cannot be loaded or a statement fails.
// Integers are written in full, beyond what a double holds.

import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { basename, join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { runInThisContext } from "node:vm";

const CHUNK_BYTES = 8 << 20;

// Field numbers and enum values of Perfetto's protos/perfetto/trace_processor/trace_processor.proto.
const STREAM = { message: 1 };
const RPC = {
  sequence: 1,
  request: 2,
  fatalError: 5,
  appendedBytes: 101,
  queryArguments: 103,
  appendResult: 201,
  queryResult: 203,
  finalizeResult: 212,
};
const METHOD = { append: 1, finalize: 2, query: 3, reset: 11 };
const APPEND_RESULT = { error: 2 };
const FINALIZE_RESULT = { error: 1 };
const QUERY_ARGUMENTS = { sql: 1 };
const QUERY_RESULT = { columnName: 1, error: 2, batch: 3 };
const BATCH = { cellTypes: 1, integers: 2, doubles: 3, blobs: 4, strings: 5 };
const CELL = { null: 1, integer: 2, double: 3, string: 4, blob: 5 };
const WIRE = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 };

/** Reads protobuf's wire format. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  get done() {
    return this.at >= this.bytes.length;
  }

  varint() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error("a message of trace_processor ends early");
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  take(length) {
    const part = this.bytes.subarray(this.at, this.at + length);
    this.at += length;
    return part;
  }

  /** Each field in turn as [number, value]: a BigInt for a varint, bytes for everything else. */
  *fields() {
    while (!this.done) {
      const key = Number(this.varint());
      const number = key >>> 3;
      const wire = key & 7;
      if (wire === WIRE.varint) yield [number, this.varint()];
      else if (wire === WIRE.bytes) yield [number, this.take(Number(this.varint()))];
      else if (wire === WIRE.fixed64) yield [number, this.take(8)];
      else if (wire === WIRE.fixed32) yield [number, this.take(4)];
      else throw new Error(`trace_processor sent wire type ${wire}`);
    }
  }
}

function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  while (rest > 0x7fn) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

const numberField = (number, value) => Buffer.concat([varint((number << 3) | WIRE.varint), varint(value)]);
const bytesField = (number, bytes) =>
  Buffer.concat([varint((number << 3) | WIRE.bytes), varint(bytes.length), bytes]);

/** The values of a repeated scalar, which may come packed into one field or one by one. */
function* repeated(value, read) {
  if (typeof value === "bigint") yield value;
  else for (const reader = new Reader(value); !reader.done; ) yield read(reader);
}

const text = (bytes) => Buffer.from(bytes).toString("utf8");

/** The engine of the UI's worker, taken out of the browser: it talks in messages over a port. */
class TraceProcessor {
  #port;
  #sequence = 0;
  #received = [];

  static async start(dist) {
    const engine = new TraceProcessor();
    engine.#startWorker(dist);
    await nextTurn(); // the engine sets itself up in a promise of its own
    return engine;
  }

  #startWorker(dist) {
    // The bundle picks its way of loading wasm by what the surrounding scope looks like: this is a worker's.
    const scope = globalThis;
    scope.self = scope;
    scope.location = { href: "http://localhost/" };
    scope.WorkerGlobalScope = class {};
    scope.XMLHttpRequest = class {
      open(_method, url) {
        this.file = join(dist, basename(url));
      }
      send() {
        this.status = 200;
        this.response = new Uint8Array(readFileSync(this.file)).buffer;
      }
    };
    // Standard output carries the answer and nothing else.
    console.log = console.info = console.warn = console.debug = console.error;
    const bundle = join(dist, "engine_bundle.js");
    // `process` would give node away.
    const run = runInThisContext(`(function (process) {${readFileSync(bundle, "utf8")}\n})`, { filename: bundle });
    run(undefined);
    this.#port = { postMessage: (bytes) => this.#received.push(Buffer.from(bytes)) };
    scope.onmessage({ data: this.#port });
  }

  /** Sends one request; answers the payloads of its responses' field `expected`. */
  #call(method, expected, argument = Buffer.alloc(0)) {
    this.#received = [];
    const rpc = Buffer.concat([
      numberField(RPC.sequence, this.#sequence++),
      numberField(RPC.request, method),
      argument,
    ]);
    this.#port.onmessage({ data: new Uint8Array(bytesField(STREAM.message, rpc)) });
    const payloads = [];
    for (const [, message] of new Reader(Buffer.concat(this.#received)).fields()) {
      for (const [number, value] of new Reader(message).fields()) {
        if (number === RPC.fatalError) throw new Error(text(value));
        if (number === expected) payloads.push(value);
      }
    }
    return payloads;
  }

  static #raiseErrors(payloads, errorField) {
    for (const payload of payloads) {
      for (const [number, value] of new Reader(payload).fields()) {
        if (number === errorField && value.length > 0) throw new Error(text(value));
      }
    }
  }

  /** Forgets the trace; the next one loads as the first did, without another start. */
  reset() {
    this.#call(METHOD.reset, RPC.queryResult);
  }

  load(path) {
    const file = openSync(path, "r");
    const chunk = Buffer.alloc(CHUNK_BYTES);
    try {
      for (let size; (size = readSync(file, chunk)) > 0; ) {
        const argument = bytesField(RPC.appendedBytes, chunk.subarray(0, size));
        TraceProcessor.#raiseErrors(this.#call(METHOD.append, RPC.appendResult, argument), APPEND_RESULT.error);
      }
    } finally {
      closeSync(file);
    }
    TraceProcessor.#raiseErrors(this.#call(METHOD.finalize, RPC.finalizeResult), FINALIZE_RESULT.error);
  }

  query(sql) {
    const argument = bytesField(RPC.queryArguments, bytesField(QUERY_ARGUMENTS.sql, Buffer.from(sql)));
    const columns = [];
    const cells = [];
    for (const payload of this.#call(METHOD.query, RPC.queryResult, argument)) {
      for (const [number, value] of new Reader(payload).fields()) {
        if (number === QUERY_RESULT.columnName) columns.push(text(value));
        else if (number === QUERY_RESULT.error && value.length > 0) throw new Error(`${text(value)}\nin: ${sql}`);
        else if (number === QUERY_RESULT.batch) cells.push(...batchCells(value));
      }
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += columns.length) rows.push(cells.slice(at, at + columns.length));
    return { columns, rows };
  }
}

/** A batch stores its cells' types in one list and their values in one list for each type. */
function batchCells(batch) {
  const types = [];
  const values = { [CELL.integer]: [], [CELL.double]: [], [CELL.blob]: [], [CELL.string]: [] };
  for (const [number, value] of new Reader(batch).fields()) {
    if (number === BATCH.cellTypes) types.push(...repeated(value, (reader) => reader.varint()));
    else if (number === BATCH.integers)
      for (const integer of repeated(value, (reader) => reader.varint()))
        values[CELL.integer].push(BigInt.asIntN(64, integer));
    else if (number === BATCH.doubles)
      values[CELL.double].push(...repeated(value, (reader) => Buffer.from(reader.take(8)).readDoubleLE()));
    else if (number === BATCH.blobs) values[CELL.blob].push(Buffer.from(value).toString("hex"));
    else if (number === BATCH.strings) values[CELL.string].push(...text(value).split("\0"));
  }
  const next = { [CELL.integer]: 0, [CELL.double]: 0, [CELL.blob]: 0, [CELL.string]: 0 };
  return types.map((type) => {
    const kind = Number(type);
    return kind === CELL.null ? null : values[kind][next[kind]++];
  });
}

/** JSON with integers in full; JSON.stringify refuses them. */
function json(value) {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(json).join(",")}]`;
  if (value !== null && typeof value === "object")
    return `{${Object.entries(value)
      .map(([key, item]) => `${JSON.stringify(key)}:${json(item)}`)
      .join(",")}}`;
  return JSON.stringify(value);
}

const [dist, ...traces] = process.argv.slice(2);
const statements = JSON.parse(readFileSync(0, "utf8"));
const engine = await TraceProcessor.start(dist);
for (const trace of traces) {
  let answer;
  try {
    engine.load(trace);
    answer = { results: statements.map((sql) => engine.query(sql)) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(`${json(answer)}\n`);
  engine.reset();
}
