/** What both ends of a connection that can be resumed have taken, and what this end has to say again. */

import { Buffer } from "node:buffer";

const KEPT_BYTES = 1 << 20; // with so many, there is no room
const SAY_LINES = 256; // the agent is told of so many lines at the latest,
const SAY_BYTES = 64 << 10; // or of so many bytes

/** Lines count from 1, in each direction. */
export class Ledger {
  taken = 0; // of the agent's lines
  #said = 0; // of these, those that the agent was told of
  #bytes = 0; // of those that it was not told of
  sent = 0; // of this client's lines, with those that wait for a connection
  written = 0; // of these, those that went into a connection: the agent may have taken them
  #kept = []; // the last of these, which the agent has not said that it took
  #keptBytes = 0;

  /** Of a new client: the hello and its reply count. */
  static welcomed() {
    return Object.assign(new Ledger(), { taken: 1, sent: 1, written: 1 });
  }

  /** A line of the agent is taken. What the agent is told of it, if it is time. */
  take(bytes) {
    this.taken++;
    this.#bytes += bytes;
    if (this.taken - this.#said < SAY_LINES && this.#bytes < SAY_BYTES) return undefined;
    return `{"took":{"lines":${this.told().taken}}}\n`;
  }

  /** The agent knows what was taken. */
  told() {
    [this.#said, this.#bytes] = [this.taken, 0];
    return this;
  }

  /** Whether another line may be kept. What gives something back is kept all the same. */
  get hasRoom() {
    return this.#keptBytes < KEPT_BYTES;
  }

  /** Keeps a line. Its number. */
  keep(line) {
    this.#kept.push(line);
    this.#keptBytes += Buffer.byteLength(line);
    return ++this.sent;
  }

  /** The agent has taken so many lines. After it said `resumed`, it may say fewer, which it took before. */
  took(lines) {
    if (!(lines <= this.written)) throw new Error(`the agent says that it took ${lines} of ${this.written} lines`);
    const more = Math.max(0, lines - (this.sent - this.#kept.length));
    for (const line of this.#kept.splice(0, more)) this.#keptBytes -= Buffer.byteLength(line);
  }

  /** All that is kept, for a new connection. */
  again() {
    this.written = this.sent;
    return this.#kept.join("");
  }

  /** Whether the agent did what this line says, as far as that is known without a reply. */
  ran(line) {
    return line > this.written ? "no" : "maybe";
  }
}
