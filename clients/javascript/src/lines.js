/** What goes over the connection: lines of JSON, whole numbers of 64 bits, payloads, errors, times, addresses. */

import { Buffer } from "node:buffer";
import { AntiphonError } from "./errors.js";

const MAX_LINE_BYTES = 64 << 20; // from the agent
const MAX_COMMAND_BYTES = 4 << 20;
const TEXT_BYTES = 600_000; // a control character has six bytes in JSON, and a command may have 4 MiB
const BUNDLE_TEXT_BYTES = 500_000; // all texts of a bundle: the rest of its 1 MiB may stand beside them as base64

/** Lines out of the pieces in which they come. */
export class Lines {
  #pieces = [];
  #bytes = 0;

  *split(chunk) {
    let start = 0;
    for (let end; (end = chunk.indexOf(10, start)) >= 0; start = end + 1) {
      this.#pieces.push(chunk.subarray(start, end));
      const line = Buffer.concat(this.#pieces);
      this.#pieces = [];
      this.#bytes = 0;
      yield line;
    }
    this.#pieces.push(chunk.subarray(start));
    this.#bytes += chunk.length - start;
    if (this.#bytes > MAX_LINE_BYTES) throw new Error(`the agent sent a line of more than ${MAX_LINE_BYTES} bytes`);
  }
}

/**
 * An event. Tokens and versions have 64 bits, of which JSON.parse keeps 53, so a long number comes as a
 * string. Inside a string a quote has a backslash before it; so what the pattern finds is a member and its
 * number. Names of arguments of commands may have dots and hyphens.
 */
export function parse(line) {
  return JSON.parse(line.toString().replace(/([{,]\s*"[\w.-]+"\s*:\s*)(-?\d{16,})/g, '$1"$2"'));
}

/** A command. The agent takes tokens and versions as strings, too, but what is added as a number only. */
export function format(op, fields) {
  const plain = (_, value) =>
    typeof value === "bigint" ? `${value}` : typeof value === "string" ? value.toWellFormed() : value;
  let line = JSON.stringify({ [op]: fields }, plain) + "\n";
  if (op === "add") line = line.replace(/,"by":"(-?\d+)"/, ',"by":$1');
  const bytes = Buffer.byteLength(line);
  if (bytes <= MAX_COMMAND_BYTES) return line;
  const reason = `${op} has ${bytes} bytes, and the agent takes ${MAX_COMMAND_BYTES}: make it shorter`;
  throw new AntiphonError("refused", reason); // the agent would end the connection
}

/** Those of a bundle, which is one line: each is a text up to its share. */
export function encodeAll(payloads) {
  const share = Math.max(1, Math.floor(BUNDLE_TEXT_BYTES / payloads.length));
  return payloads.map((payload) => encode(payload, share));
}

/** A string as it is, bytes in base64. */
export function encode(payload, textBytes = TEXT_BYTES) {
  if (typeof payload === "string") {
    if (Buffer.byteLength(payload) <= textBytes) return payload;
    return { base64: Buffer.from(payload).toString("base64") };
  }
  if (!(payload instanceof Uint8Array)) throw new TypeError("a payload is a string or a Uint8Array");
  return { base64: Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString("base64") };
}

export function decode(payload) {
  return typeof payload === "string" ? Buffer.from(payload) : Buffer.from(payload.base64, "base64");
}

/** The error of a reply, with what the reply has beside it. */
export function failure(error, { version, failures = {} } = {}) {
  return new AntiphonError(error.code, error.reason, error.ran, {
    version: version === undefined ? undefined : BigInt(version),
    payload: error.payload === undefined ? undefined : decode(error.payload),
    failures: byNode(failures, (why) => failure(why)),
  });
}

export function byNode(of, read) {
  return new Map(Object.entries(of).map(([node, one]) => [node, read(one)]));
}

/** Bytes under a name, and the same as `text`. */
export class Said {
  constructor(fields) {
    Object.assign(this, fields);
  }

  get text() {
    return (this.payload ?? this.value)?.toString() ?? null;
  }
}

export function span(ms) {
  if (ms === undefined) return undefined;
  if (!(ms >= 0 && ms < Infinity)) throw new RangeError(`a time is a number of milliseconds, not ${ms}`);
  return `${Math.ceil(ms)}ms`;
}

/** What `net.connect` takes, of "host:port" or "unix:/path". */
export function address(text) {
  if (text.startsWith("unix:")) return { path: text.slice(5) };
  const [, host, port] = /^\[?(.+?)\]?:(\d{1,5})$/.exec(text) ?? [];
  if (!host) throw new TypeError(`an address is "host:port" or "unix:/path", not ${JSON.stringify(text)}`);
  return { host, port: Number(port), noDelay: true };
}
