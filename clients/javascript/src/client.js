/** What a program has of one connection to an agent. */

import { Buffer } from "node:buffer";
import net from "node:net";
import { Comeback } from "./comeback.js";
import { Connection, serving } from "./connection.js";
import { AntiphonError, ConnectionLost } from "./errors.js";
import { address as read, byNode, decode, encode, encodeAll, failure, Said, span } from "./lines.js";
import { after } from "./timer.js";

const ASK_AFTER_MS = 60_000; // of silence, whether the agent's host is there, as the agent asks its clients
const ANSWER_BYTES = 59_744; // the agent takes no longer answer of a handler
const COMMAND_ANSWER_BYTES = 1 << 20; // the most that a list may allow
const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose"); // for `await using`

/**
 * A client of the agent at "host:port" or "unix:/path", called `name` in groups. With `graceMs` it comes back
 * when its connection breaks.
 */
export async function connect(address, options = {}) {
  const { name, timeoutMs = 10_000, bufferBytes = 1 << 20, graceMs = 0, token, tls } = options;
  const dial = await dialer(read(address), tls);
  const hello = { name, token, grace: graceMs ? span(graceMs) : undefined };
  const comeback = graceMs ? new Comeback(dial, hello, graceMs) : undefined;
  const connection = new Connection(dial(), bufferBytes, comeback);
  const timer = after(timeoutMs, () => connection.cut(`${address} did not answer within ${timeoutMs} ms`));
  const welcomed = ({ welcome }) => {
    if (comeback) comeback.key = welcome.resume;
    return new Client(connection, welcome);
  };
  try {
    const client = await connection.ask("hello", hello, { read: welcomed });
    if (comeback && !comeback.key) throw new AntiphonError("refused", "this agent keeps no clients: leave graceMs out");
    return client;
  } catch (error) {
    connection.cut();
    if (error instanceof ConnectionLost) error.ran = "no"; // nothing is asked before the welcome
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** A host that goes without a word is noticed within two minutes, as long as nothing waits to be sent to it. */
async function dialer(where, options) {
  if (!options) return () => net.connect(where).setKeepAlive(true, ASK_AFTER_MS);
  if (where.path) throw new TypeError("tls is for addresses of TCP: leave it out at a Unix socket");
  const tls = await import("node:tls");
  return () =>
    tls.connect({ ...where, ...(options === true ? {} : options) }).setNoDelay().setKeepAlive(true, ASK_AFTER_MS);
}

export class Client {
  #connection;

  constructor(connection, welcome) {
    this.#connection = connection;
    connection.welcomed = ({ client, node, cluster, build }) =>
      Object.assign(this, { name: client, node, cluster, build });
    connection.welcomed(welcome);
  }

  /** What this client is called in groups. */
  get member() {
    return `${this.node}/${this.name}`;
  }

  async join(group) {
    const connection = this.#connection;
    connection.check();
    if (connection.groups.has(group)) throw new AntiphonError("refused", `this client has joined ${group} already`);
    const stream = connection.stream(() => {
      stream.add({ type: "lost", group, cause: "slow: its reader waited for a reply while too much was unread" });
      stream.end();
      connection.tell("leave", { group }, { urgent: true }).catch(() => {});
    });
    connection.groups.set(group, stream);
    await connection.ask("join", { group, bundles: true }, { failed: () => connection.groups.delete(group) });
    return new Group(connection, group, stream);
  }

  /** Waits until the lock is held: at most `withinMs`, and until `signal` is aborted. */
  async lock(name, { withinMs, signal } = {}) {
    return hold(this.#connection, Lock, name, "lock", { name, within: span(withinMs) }, signal);
  }

  /** Waits until this client leads the job. */
  lead(name, { signal } = {}) {
    return hold(this.#connection, Leadership, name, "lead", { name }, signal);
  }

  map(name) {
    return new SharedMap(this.#connection, name);
  }

  counter(name) {
    return new Counter(this.#connection, name);
  }

  /** Numbers that no other caller is ever given. */
  takeIds(count = 1) {
    const read = ({ first }) => Array.from({ length: count }, (_, at) => BigInt(first) + BigInt(at));
    return this.#connection.ask("take_ids", { count }, { read });
  }

  /** Answers such requests with what the handler returns, one after the other. */
  serve(group, verb, handler) {
    return serve(this.#connection, "serve", { group, verb }, handler);
  }

  /** `to`: "any", "all", or a list of nodes. An error if none answered. */
  call(group, verb, payload = "", { to = "any", withinMs, signal } = {}) {
    return answers(this.#connection, "call", { group, verb, to, payload: encode(payload) }, withinMs, signal);
  }

  /**
   * Has nodes do what their lists of commands allow. `to`: "all", "one", "any", or a list of nodes. Without
   * `reply` it is only handed over.
   */
  command(verb, args, to, { by, reply, withinMs, signal } = {}) {
    return answers(this.#connection, "command", { verb, args, to, by, reply }, withinMs, signal);
  }

  /** Answers commands of a verb that the list delivers to sessions, as `serve` does. */
  serveCommand(verb, handler) {
    return serve(this.#connection, "serve_command", { verb }, handler);
  }

  /** The list's version, and what commands to peers did. */
  commands() {
    return this.#connection.ask("commands", {}, { read: ({ commands }) => commands });
  }

  /** The nodes of the cluster, the elder first. */
  members() {
    const read = ({ view: { id, number, primary, members } }) =>
      ({ id: String(id), number: BigInt(number), primary, nodes: members, names: members.map((node) => node.name) });
    return this.#connection.ask("members", {}, { read });
  }

  /** What is known about a node, present or gone. */
  why(node) {
    return this.#connection.ask("why", { node }, { read: ({ facts }) => facts });
  }

  /** Leaves everything in order. */
  close() {
    return this.#connection.close();
  }

  [asyncDispose]() {
    return this.close();
  }
}

async function answers(connection, op, fields, withinMs, signal) {
  const read = ({ replies = {}, failures = {} }) => ({
    replies: byNode(replies, (said) => new Said({ payload: decode(said) })),
    failures: byNode(failures, (why) => failure(why)),
  });
  return connection.ask(op, { ...fields, within: span(withinMs) }, { read, signal });
}

async function serve(connection, op, fields, handler) {
  connection.check();
  const key = serving(op, fields);
  if (connection.served.has(key))
    throw new AntiphonError("refused", `this client serves ${fields.verb} already`);
  const stream = connection.stream(({ number }) => {
    const said = { request: number, error: "too many requests wait" };
    connection.tell("answer", said, { urgent: true }).catch(() => {});
  });
  connection.served.set(key, { stream, op, fields });
  await connection.ask(op, fields, { failed: () => connection.served.delete(key) });
  const most = op === "serve" ? ANSWER_BYTES : COMMAND_ANSWER_BYTES;
  answerAll(connection, stream, handler, most).catch(() => {}); // the connection is over, which all others are told
}

async function answerAll(connection, stream, handler, most) {
  for await (const { request, number, life } of { [Symbol.asyncIterator]: () => stream }) {
    if (life !== connection.life) continue; // it was asked of the client that this one was before
    let answer, said;
    try {
      answer = (await handler(request)) ?? "";
      said = { payload: encode(answer) };
    } catch (error) {
      answer = String(error?.message ?? error); // whatever it is, the caller is told
      said = { error: answer };
    }
    const bytes = Buffer.byteLength(answer);
    if (bytes > most) said = { error: `the answer has ${bytes} bytes, and may have ${most}` };
    if (life === connection.life) await connection.tell("answer", { request: number, ...said }).catch(() => {});
  }
}

function hold(connection, Held, name, op, fields, signal) {
  const read = ({ id, token }) => {
    const lost = new AbortController();
    connection.held.set(id, lost);
    return new Held(connection, id, name, BigInt(token), lost.signal);
  };
  return connection.ask(op, fields, { read, undo: (held) => held[asyncDispose]().catch(() => {}), signal });
}

/** Events to iterate over. A loop that is left by `break` may go on later. */
class Events {
  #stream;

  constructor(stream) {
    this.#stream = stream;
  }

  [Symbol.asyncIterator]() {
    return { next: () => this.#stream.next() };
  }

  /** The next event, or undefined behind the last. */
  async nextEvent(withinMs) {
    return (await this.#stream.next(withinMs)).value;
  }
}

/** A group that this client is in. */
export class Group extends Events {
  #connection;
  #stream;

  constructor(connection, name, stream) {
    super(stream);
    this.#connection = connection;
    this.#stream = stream;
    this.name = name;
  }

  /** Says it to all members. `wait`: until it is delivered. `safe`: only when every node of the group holds it. */
  async send(payload, options) {
    await this.#say("send", { payload: encode(payload) }, options);
  }

  /** Says several things in one line. All members are told all of them, with nothing in between, or none. */
  async sendBundle(payloads, options) {
    if (!payloads.length) throw new AntiphonError("refused", "a bundle has one payload at least");
    await this.#say("send_bundle", { payloads: encodeAll(payloads) }, options);
  }

  async #say(op, said, { safe, wait = false } = {}) {
    const connection = this.#connection;
    connection.check();
    if (connection.groups.get(this.name) !== this.#stream)
      throw new AntiphonError("not_held", `this client is not in ${this.name} any more: join it again`);
    const fields = { group: this.name, ...said, safe: safe || undefined };
    await (wait ? connection.ask(op, fields) : connection.tell(op, fields));
  }

  /** What is unread is dropped. */
  async leave() {
    const connection = this.#connection;
    const isIn = connection.groups.get(this.name) === this.#stream;
    this.#stream.drop();
    if (!isIn) return;
    try {
      // It is out behind the reply, and what is unread of other groups may be between them.
      await connection.inWait(async () => {
        await connection.ask("leave", { group: this.name }, { urgent: true });
        while (!(await this.#stream.next()).done);
      });
    } catch (error) {
      if (!(error instanceof AntiphonError)) throw error; // else this client is out in another way
    }
  }

  [asyncDispose]() {
    return this.leave();
  }
}

class Held {
  #connection;
  #id;

  constructor(connection, id, name, token, lost) {
    this.#connection = connection;
    this.#id = id;
    this.name = name;
    this.token = token;
    this.lost = lost;
  }

  get isHeld() {
    return this.#connection.held.has(this.#id);
  }

  async giveBack(op, to) {
    const read = () => void this.#connection.held.delete(this.#id);
    // Without `to` the agent holds it no more, whatever its reply is. If a job cannot be handed over, the agent leads on.
    const failed = ({ code }) => to || code === "connection" || read();
    await this.#connection.ask(op, { name: this.name, token: this.token, to }, { read, failed, urgent: true });
  }
}

/** A lock that is held. Give `token` to what it protects: that refuses a lower one than it has seen. */
export class Lock extends Held {
  unlock() {
    return this.giveBack("unlock");
  }

  async [asyncDispose]() {
    if (this.isHeld) await this.unlock();
  }
}

/** A job that this client leads. */
export class Leadership extends Held {
  /** `to`: the node that leads next, which must wait for it; else the one that has waited longest. */
  resign({ to } = {}) {
    return this.giveBack("resign", to);
  }

  async [asyncDispose]() {
    if (this.isHeld) await this.resign();
  }
}

/** Keys and values that all nodes share. */
export class SharedMap {
  #connection;

  constructor(connection, name) {
    this.#connection = connection;
    this.name = name;
  }

  /** Value and version, or null. `latest`: with all that was written before, anywhere. */
  get(key, { latest } = {}) {
    return this.#connection.ask("get", { map: this.name, key, latest }, { read: item });
  }

  /** The new version. `ifVersion`: only if the key has this one; 0: only if it has no value. */
  async put(key, value, { ifVersion, ttlMs } = {}) {
    const fields = { map: this.name, key, value: encode(value), if_version: serial(ifVersion), ttl: span(ttlMs) };
    return this.#connection.ask("put", fields, { read: ({ version }) => BigInt(version) });
  }

  /** Value and version that it had, or null. */
  async remove(key, { ifVersion } = {}) {
    const fields = { map: this.name, key, if_version: serial(ifVersion) };
    return this.#connection.ask("remove", fields, { read: item });
  }

  /** What is there, and then each change: of one key, of those with a prefix, or of all. */
  watch({ key, prefix } = {}) {
    const connection = this.#connection;
    const read = ({ id }) => {
      const stream = connection.stream(() => {
        stream.end(new AntiphonError("lost", "too much was unread while its reader waited for a reply"));
        watch.close();
      });
      const watch = new Watch(connection, id, stream);
      connection.watches.set(id, stream);
      return watch;
    };
    return connection.ask("watch", { map: this.name, key, prefix }, { read });
  }
}

function serial(version) {
  return version === undefined ? undefined : BigInt(version);
}

function item({ value, version }) {
  return value == null ? null : new Said({ value: decode(value), version: BigInt(version) });
}

/** A watch of a map. */
export class Watch extends Events {
  #connection;
  #id;
  #stream;

  constructor(connection, id, stream) {
    super(stream);
    this.#connection = connection;
    this.#id = id;
    this.#stream = stream;
  }

  async close() {
    const isKnown = this.#connection.watches.delete(this.#id);
    this.#stream.end();
    this.#stream.drop();
    if (isKnown) await this.#connection.tell("cancel", { of: this.#id }, { urgent: true }).catch(() => {});
  }

  [asyncDispose]() {
    return this.close();
  }
}

/** A number that all nodes share. */
export class Counter {
  #connection;

  constructor(connection, name) {
    this.#connection = connection;
    this.name = name;
  }

  /** Its new value. */
  async add(by = 1) {
    return this.#connection.ask("add", { counter: this.name, by: BigInt(by) }, { read: ({ value }) => BigInt(value) });
  }
}
