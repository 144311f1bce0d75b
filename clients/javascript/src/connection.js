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
 *
 * With `comeback` the socket may break and another one take its place. Then the ledger counts lines and keeps
 * what is to be said again. While there is no socket, what is asked for waits in the ledger.
 *
 * The agent counts on the ledger's bound: it reads a client's `took` behind the client's other lines, and it may
 * stop reading beyond so much that it has not confirmed. So what finds no room waits. What gives something back
 * does not wait.
 */

import { AntiphonError, ConnectionLost } from "./errors.js";
import { Ledger } from "./ledger.js";
import { decode, failure, format, Lines, parse, Said } from "./lines.js";
import { Bundle, Stream } from "./stream.js";

const CLOSE_WITHIN_MS = 5000; // for leaving in order

/** The name of a verb that is served, among those of all groups. */
export function serving(op, fields) {
  return [op, ...Object.values(fields)].join("\n");
}

export class Connection {
  cause; // why it is over
  groups = new Map();
  watches = new Map();
  served = new Map(); // streams, and with what they are asked for, by that
  life = 0; // how often this client came back as a new one: numbers of requests count in one life alone
  held = new Map(); // what aborts the signal of a lock or a leadership, by the id that it was asked for with
  welcomed = () => {}; // is called with what the agent said to a new client
  #socket;
  #comeback;
  #ledger;
  #bufferBytes;
  #lines;
  #asked = new Map();
  #waiting = new Set(); // the numbers of operations that wait for a reply, or to be sent, in their order
  #noRoom = new Set(); // lines that wait for room in the ledger, and what is called when they have it, or never will
  #lastNumber = 0;
  #full; // the stream for which the socket is not read
  #lastWords; // of the agent, or of this client
  #closing = false;
  #isCut = false;
  #ended;
  #over = new Promise((resolve) => (this.#ended = resolve));

  constructor(socket, bufferBytes, comeback) {
    this.#bufferBytes = bufferBytes;
    this.#comeback = comeback;
    if (comeback) this.#ledger = new Ledger();
    this.#attach(socket);
  }

  #attach(socket) {
    this.#socket = socket;
    this.#lines = new Lines();
    socket.on("data", (chunk) => this.#read(chunk));
    socket.on("error", (error) => (this.#lastWords ??= `the connection broke: ${error.message || error.code}`));
    socket.on("close", () => this.#break("the agent closed the connection"));
  }

  /**
   * Asks for an operation. `read` makes the result of its reply, before the next line is looked at. `undo`
   * gives back what is granted after `signal` has ended the wait. What is `urgent` waits for no room.
   */
  ask(op, fields, { read = () => {}, failed = () => {}, undo = () => {}, signal, urgent } = {}) {
    return new Promise((resolve, reject) => {
      this.check();
      signal?.throwIfAborted();
      const number = ++this.#lastNumber;
      const named = op === "why" ? fields : { ...fields, id: number }; // `why` is answered in its order
      const line = this.#line(op, named, failed);
      const abort = () => {
        reject(signal.reason);
        if (this.#noRoom.delete(entry)) return done(); // the agent knows nothing of it
        this.#waiting.delete(number);
        this.tell("cancel", { of: number }, { urgent: true }).catch(() => {});
      };
      const done = () => {
        this.#asked.delete(number);
        this.#waiting.delete(number);
        signal?.removeEventListener("abort", abort);
      };
      const asked = {
        op,
        line: Infinity, // until the ledger has it
        answer: (reply) => {
          const result = read(reply); // without sense it ends the connection, and this fails with all others
          done();
          if (signal?.aborted) undo(result);
          else resolve(result);
        },
        fail: (error) => {
          done();
          failed(error);
          reject(error);
        },
      };
      const entry = { line, kept: (number) => (asked.line = number), failed: () => {} }; // `asked.fail` tells it
      this.#asked.set(number, asked);
      signal?.addEventListener("abort", abort);
      this.#wait(number);
      if (this.#ledger) this.#keep(entry, urgent);
      else this.#socket.write(line);
    });
  }

  /** What is too long for a line has failed before it was said. */
  #line(op, fields, failed) {
    try {
      return format(op, fields);
    } catch (error) {
      failed(error);
      throw error;
    }
  }

  /** Does something that waits for more than a reply, as one operation. */
  async inWait(work) {
    const number = ++this.#lastNumber;
    this.#wait(number);
    try {
      return await work();
    } finally {
      this.#waiting.delete(number);
    }
  }

  /** Sends a command that is not replied to. */
  async tell(op, fields, { urgent } = {}) {
    this.check();
    const number = ++this.#lastNumber;
    const line = format(op, fields);
    await new Promise((resolve, reject) => {
      const end = (settle, value) => {
        this.#waiting.delete(number);
        settle(value);
      };
      const sent = (error) => {
        if (error) end(reject, new ConnectionLost(this.cause ?? this.#lastWords ?? error.message));
        else end(resolve);
      };
      const entry = { line, kept: () => end(resolve), failed: (error) => end(reject, error) };
      if (this.#ledger ? this.#keep(entry, urgent) : this.#socket.write(line, sent)) resolve();
      else this.#wait(number);
    });
  }

  /** Says a line over as many connections as it takes. False if it waits for room. */
  #keep(entry, urgent) {
    this.#noRoom.add(entry);
    if (urgent) this.#say(entry);
    else this.#useRoom();
    return !this.#noRoom.has(entry);
  }

  #useRoom() {
    for (const entry of this.#noRoom) {
      if (!this.#ledger.hasRoom || this.#closing) return;
      this.#say(entry);
    }
  }

  #say(entry) {
    this.#noRoom.delete(entry);
    const number = this.#ledger.keep(entry.line);
    if (this.#socket) {
      this.#ledger.written = number;
      this.#socket.write(entry.line);
    }
    entry.kept(number);
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
      this.tell("leave", {}, { urgent: true }).catch(() => {});
      const timer = setTimeout(() => this.cut(), CLOSE_WITHIN_MS);
      await this.#over;
      clearTimeout(timer);
    }
  }

  /** Ends at once. */
  cut(cause) {
    this.#isCut = true;
    this.#lastWords ??= cause;
    if (this.#socket) return this.#socket.destroy();
    this.#comeback.stop();
    this.#lose(cause ?? "this client closed the connection");
  }

  #streams() {
    const served = [...this.served.values()].map(({ stream }) => stream);
    return [...this.groups.values(), ...this.watches.values(), ...served];
  }

  #lose(cause) {
    this.cause = this.#lastWords ?? (this.#closing ? "this client closed the connection" : cause);
    this.#fail((ran) => new ConnectionLost(this.cause, ran));
    for (const stream of this.#streams()) stream.end(this.#closing ? undefined : new ConnectionLost(this.cause));
    for (const id of [...this.held.keys()]) this.#loseHeld(id, this.cause);
    this.#ended();
  }

  /** All that is under way. */
  #fail(error) {
    for (const { fail, line } of [...this.#asked.values()]) fail(error(this.#ledger?.ran(line) ?? "maybe"));
    for (const { failed } of this.#noRoom) failed(error("no"));
    this.#noRoom.clear();
  }

  #loseHeld(id, cause) {
    const lost = this.held.get(id);
    this.held.delete(id);
    lost?.abort(new AntiphonError("lost", cause));
  }

  // Coming back.

  #break(cause) {
    if (!this.#comeback?.key || this.#closing || this.#isCut) return this.#lose(cause);
    const why = this.#lastWords ?? cause;
    this.#lastWords = this.#socket = undefined;
    const back = (socket, welcome, rest) => {
      this.#attach(socket);
      try {
        if (welcome.resumed === undefined) this.#beginAnew(welcome, why);
        else this.#resume(welcome.resumed);
      } catch (error) {
        return this.cut(`the connection broke: ${error.message}`);
      }
      this.#read(rest);
    };
    this.#comeback.begin(this.#ledger.told().taken, back, (reason) => this.#lose(`${why}; ${reason}`));
  }

  #resume(lines) {
    this.#ledger.took(lines);
    this.#socket.write(this.#ledger.again());
    this.#useRoom();
  }

  /** The agent does not know this client any more. The program is told so of all that it had or waits for. */
  #beginAnew(welcome, why) {
    const cause = `this client came back as a new one: ${why}`;
    this.life++;
    this.#fail((ran) => new AntiphonError("connection", cause, ran));
    this.#ledger = Ledger.welcomed();
    if (this.#closing) return void this.tell("leave", {}, { urgent: true });
    this.welcomed(welcome);
    for (const [group, stream] of [...this.groups]) {
      if (stream.isDropped) this.#leave(group); // that was under way
      else this.#joinAgain(group, cause);
    }
    for (const { op, fields } of this.served.values())
      this.#again(op, fields, (reason) => this.cut(`${cause}, and could not ${op} ${fields.verb}: ${reason}`));
    // What the program says when it is told of this, comes behind.
    const groups = [...this.groups];
    for (const id of [...this.held.keys()]) this.#loseHeld(id, cause);
    for (const stream of this.watches.values()) stream.end(new AntiphonError("lost", cause));
    this.watches.clear();
    for (const [group, stream] of groups) this.#put(stream, { type: "resync", group, cause }, cause.length);
  }

  #joinAgain(group, cause) {
    this.#again("join", { group, bundles: true }, (reason) => {
      this.#takeLost({ what: "group", name: group, cause: `${cause}, and could not join: ${reason}` }, reason.length);
    });
  }

  #again(op, fields, failed) {
    // If the connection breaks again, it is asked for again, or the whole client is lost.
    this.ask(op, fields).catch(({ code, reason }) => code !== "connection" && failed(reason));
  }

  // The bound of what is unread.

  #wait(number) {
    this.#waiting.add(number);
    this.#readOn();
  }

  #isFull() {
    if (!this.#full || this.#full.isOver) return false; // what is over grows no more
    if (this.#full.bytes <= this.#bufferBytes) return false;
    for (const number of this.#waiting) if (number > this.#full.takenAt) return false;
    return true;
  }

  #readOn() {
    if (!this.#isFull() && this.#socket?.isPaused()) this.#socket.resume();
  }

  #put(stream, event, bytes) {
    stream?.put(event, bytes);
    if (stream?.bytes > this.#bufferBytes) this.#full = stream;
  }

  // What the agent says.

  #read(chunk) {
    try {
      for (const line of this.#lines.split(chunk)) if (line.length) this.#takeLine(parse(line), line.length);
    } catch (error) {
      this.cut(`the connection broke: ${error.message}`); // what waits is told, whatever it is
    }
    if (this.#isFull()) this.#socket?.pause(); // at most a chunk late
  }

  #takeLine(event, bytes) {
    if (event.event === "took") return this.#takeTook(event);
    this.#take(event, bytes);
    const took = this.#ledger?.take(bytes + 1);
    if (took) this.#socket?.write(took);
  }

  #takeTook({ lines }) {
    this.#ledger?.took(lines);
    this.#useRoom();
  }

  #take({ event: type, ...event }, bytes) {
    switch (type) {
      case "view":
        return this.#put(this.groups.get(event.group), { type, causes: {}, ...event }, bytes);
      case "message": {
        const { payload, safe = false, part = 0 } = event;
        const message = new Said({ type, ...event, payload: decode(payload), safe, part });
        return this.#put(this.groups.get(event.group), message, bytes);
      }
      case "bundle":
        return this.#put(this.groups.get(event.group), new Bundle(event), bytes);
      case "transitional":
      case "suspended":
      case "resync":
        return this.#put(this.groups.get(event.group), { type, ...event }, bytes);
      case "group_left":
        return this.#leave(event.group);
      case "lost":
        return this.#takeLost(event, bytes);
      case "refused":
        return this.#takeRefused({ type, ...event }, bytes);
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
        const request = new Said({ group, verb, sender, payload: decode(event.payload), withinMs });
        return this.#serve("serve", { group, verb }, { request, number, life: this.life }, bytes);
      }
      case "command": {
        const { verb, args, from: sender, within_ms: withinMs, request: number } = event;
        return this.#serve("serve_command", { verb },
          { request: { verb, args, sender, withinMs }, number, life: this.life }, bytes);
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

  #serve(op, fields, asked, bytes) {
    this.#put(this.served.get(serving(op, fields))?.stream, asked, bytes);
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

  #takeRefused({ type, group, reason, request }, bytes) {
    if (group === null) this.#lastWords = reason;
    else if (request) {
      const [{ payload = null, payloads = [payload] }] = Object.values(request); // long ones do not come back
      for (const said of payloads) {
        const payload = said === null ? null : decode(said);
        this.#put(this.groups.get(group), new Said({ type, group, reason, payload }), bytes);
      }
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
