/**
 * One connection: commands out, lines in, and what each line is for.
 *
 *     socket ─► Lines ─► #take ─┬─► #asked    the reply to an operation, by its id
 *                               ├─► Stream    what a group, a watch or a served verb is told
 *                               └─► held      a lock or a leadership is over
 *
 * When a stream has more than its bound, the socket is not read, and TCP and the agent make the senders wait.
 * One case is different: the reader of that stream may wait for a reply itself, which is behind the events.
 * It can only wait for what was asked for after it took its last event. While there is such an operation, the
 * socket is read on, and the stream may grow to its greater bound.
 */

import { AntiphonError, ConnectionLost, failure } from "./errors.js";
import { decode, format, Lines, parse, Said } from "./lines.js";
import { Stream } from "./stream.js";

const CLOSE_WITHIN_MS = 5000; // for leaving in order

export class Connection {
  cause; // why it is over
  groups = new Map();
  watches = new Map();
  served = new Map();
  held = new Map(); // what aborts the signal of a lock or a leadership, by the id that it was asked for with
  #socket;
  #bufferBytes;
  #lines = new Lines();
  #asked = new Map();
  #waiting = new Set(); // the numbers of operations that wait for a reply, or to be sent, in their order
  #lastNumber = 0;
  #full; // the stream for which the socket is not read
  #lastWords; // of the agent, or of this client
  #closing = false;
  #over;

  constructor(socket, bufferBytes) {
    this.#socket = socket;
    this.#bufferBytes = bufferBytes;
    this.#over = new Promise((resolve) => socket.once("close", resolve));
    socket.on("data", (chunk) => this.#read(chunk));
    socket.on("error", (error) => (this.#lastWords ??= `the connection broke: ${error.message}`));
    socket.on("close", () => this.#lose("the agent closed the connection"));
  }

  /**
   * Asks for an operation. `read` makes the result of its reply, before the next line is looked at. `undo`
   * gives back what is granted after `signal` has ended the wait.
   */
  ask(op, fields, { read = () => {}, failed = () => {}, undo = () => {}, signal } = {}) {
    return new Promise((resolve, reject) => {
      this.check();
      signal?.throwIfAborted();
      const number = ++this.#lastNumber;
      const line = format(op, op === "why" ? fields : { ...fields, id: number }); // `why` is answered in its order
      const abort = () => {
        this.#waiting.delete(number);
        this.tell("cancel", { of: number }).catch(() => {});
        reject(signal.reason);
      };
      const done = () => {
        this.#asked.delete(number);
        this.#waiting.delete(number);
        signal?.removeEventListener("abort", abort);
      };
      this.#asked.set(number, {
        op,
        answer: (reply) => {
          done();
          const result = read(reply);
          if (signal?.aborted) undo(result);
          else resolve(result);
        },
        fail: (error) => {
          done();
          failed();
          reject(error);
        },
      });
      signal?.addEventListener("abort", abort);
      this.#wait(number);
      this.#socket.write(line);
    });
  }

  /** Sends a command that is not replied to. */
  async tell(op, fields) {
    this.check();
    const number = ++this.#lastNumber;
    await new Promise((resolve, reject) => {
      const sent = (error) => {
        this.#waiting.delete(number);
        if (error) reject(new ConnectionLost(this.cause ?? this.#lastWords ?? error.message));
        else resolve();
      };
      if (this.#socket.write(format(op, fields), sent)) resolve();
      else this.#wait(number);
    });
  }

  check() {
    if (this.cause !== undefined) throw new ConnectionLost(this.cause, "no");
  }

  stream(overrun) {
    const stream = new Stream((stream) => {
      stream.takenAt = this.#lastNumber;
      this.#readOn();
    }, overrun);
    stream.takenAt = this.#lastNumber;
    return stream;
  }

  /** Leaves everything in order. */
  async close() {
    this.#closing = true;
    for (const stream of this.#streams()) stream.drop();
    if (this.cause === undefined) {
      this.tell("leave", {}).catch(() => {});
      const timer = setTimeout(() => this.#socket.destroy(), CLOSE_WITHIN_MS);
      await this.#over;
      clearTimeout(timer);
    }
  }

  /** Ends at once. */
  cut(cause) {
    this.#lastWords ??= cause;
    this.#socket.destroy();
  }

  #streams() {
    return [...this.groups.values(), ...this.watches.values(), ...this.served.values()];
  }

  #lose(cause) {
    this.cause = this.#lastWords ?? (this.#closing ? "this client closed the connection" : cause);
    for (const asked of [...this.#asked.values()]) asked.fail(new ConnectionLost(this.cause));
    for (const stream of this.#streams()) stream.end(this.#closing ? undefined : new ConnectionLost(this.cause));
    for (const id of [...this.held.keys()]) this.#loseHeld(id, this.cause);
  }

  #loseHeld(id, cause) {
    const lost = this.held.get(id);
    this.held.delete(id);
    lost?.abort(new AntiphonError("lost", cause));
  }

  // The bound of what is unread.

  #wait(number) {
    this.#waiting.add(number);
    this.#readOn();
  }

  #isFull() {
    if (!this.#full || this.#full.bytes <= this.#bufferBytes) return false;
    for (const number of this.#waiting) if (number > this.#full.takenAt) return false;
    return true;
  }

  #readOn() {
    if (!this.#isFull() && this.#socket.isPaused()) this.#socket.resume();
  }

  #put(stream, event, bytes) {
    stream?.put(event, bytes);
    if (stream?.bytes > this.#bufferBytes) this.#full = stream;
  }

  // What the agent says.

  #read(chunk) {
    try {
      for (const line of this.#lines.split(chunk)) this.#take(parse(line), line.length);
    } catch (error) {
      this.cut(`the connection broke: ${error.message}`); // what waits is told, whatever it is
    }
    if (this.#isFull()) this.#socket.pause(); // at most a chunk late
  }

  #take({ event: type, ...event }, bytes) {
    switch (type) {
      case "view":
        return this.#put(this.groups.get(event.group), { type, causes: {}, ...event }, bytes);
      case "message": {
        const message = new Said({ type, ...event, payload: decode(event.payload), safe: event.safe ?? false });
        return this.#put(this.groups.get(event.group), message, bytes);
      }
      case "transitional":
      case "suspended":
      case "resync":
        return this.#put(this.groups.get(event.group), { type, ...event }, bytes);
      case "group_left":
        return this.#leave(event.group);
      case "lost":
        return this.#takeLost(event, bytes);
      case "refused":
        return this.#takeRefused(event, bytes);
      case "watching":
        return this.#put(this.watches.get(event.id), { type, entries: event.entries }, bytes);
      case "changed": {
        const { key, version, gone } = event;
        const value = event.value === null ? null : decode(event.value);
        const changed = new Said({ type, key, value, version: BigInt(version), gone });
        return this.#put(this.watches.get(event.id), changed, bytes);
      }
      case "request": {
        const { group, verb, from: sender, within_ms: withinMs, request: number } = event;
        const request = new Said({ group, verb, sender, payload: decode(event.payload), withinMs, number });
        return this.#put(this.served.get(`${group}\n${verb}`), request, bytes);
      }
      case "reply": {
        const asked = this.#asked.get(event.id);
        return event.error ? asked?.fail(failure(event.error, event)) : asked?.answer(event);
      }
      case "why":
        return this.#firstWhy()?.answer(event);
      case "error":
        return this.#takeError(event);
      // Anything else a newer agent says.
    }
  }

  #leave(group) {
    this.groups.get(group)?.end();
    this.groups.delete(group);
  }

  #takeLost({ what, name, id, cause }, bytes) {
    if (what === "group") {
      this.#put(this.groups.get(name), { type: "lost", group: name, cause }, bytes);
      this.#leave(name);
    } else if (what === "watch") {
      this.watches.get(id)?.end(new AntiphonError("lost", cause));
      this.watches.delete(id);
    } else this.#loseHeld(id, cause);
  }

  #takeRefused({ group, reason, request }, bytes) {
    if (group === null) this.#lastWords = reason;
    else if (request) {
      const refused = new Said({ type: "refused", group, reason, payload: decode(request.send.payload) });
      this.#put(this.groups.get(group), refused, bytes);
    }
  }

  /** A line that the agent could not carry out, in place of a reply. */
  #takeError({ reason, request }) {
    const error = new AntiphonError("refused", reason);
    const [op, fields] = Object.entries(Object(request))[0] ?? [];
    if (request === null) this.#lastWords = reason;
    else if (typeof request === "string") this.cut(`the agent did not understand a command: ${reason}`);
    else if (op === "why") this.#firstWhy()?.fail(error);
    else this.#asked.get(fields?.id)?.fail(error);
  }

  #firstWhy() {
    for (const asked of this.#asked.values()) if (asked.op === "why") return asked;
  }
}
