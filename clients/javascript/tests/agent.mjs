/** An agent whose clients come back. Its connections break where a test says, at any byte. */

import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { Lines } from "../src/lines.js";

const SAY_LINES = 256; // a client is told behind so many that they were taken,
const SAY_BYTES = 64 << 10; // or behind a line of so many bytes

export class Agent {
  taken = []; // commands of all clients, as often as they were taken
  tries = 0; // connections that it has refused to serve
  #server;
  #sessions = new Map();
  #last = 0;
  #sum = 0;

  /** `breaks`: after how many bytes in and out the next connection breaks; none for one that does not. */
  static async start(breaks = () => undefined) {
    const agent = new Agent();
    agent.breaks = breaks;
    agent.#server = net.createServer({ noDelay: true }, (socket) => agent.#serve(socket));
    agent.#server.listen(0, "127.0.0.1");
    await once(agent.#server, "listening");
    agent.address = `127.0.0.1:${agent.#server.address().port}`;
    return agent;
  }

  stop() {
    this.#server.close();
    this.cut();
  }

  cut() {
    for (const { socket } of this.#sessions.values()) socket?.destroy();
  }

  /** It is another process from now on. */
  forget() {
    this.cut();
    this.#sessions.clear();
  }

  ops() {
    return this.taken.map((command) => Object.keys(command)[0]);
  }

  /** Waits until `condition` holds. */
  async until(condition) {
    for (let left = 1000; !condition(); left--) {
      assert.ok(left, `it does not come to this: ${condition}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** To all clients. */
  say(...events) {
    for (const session of this.#sessions.values()) for (const event of events) this.#say(session, event);
  }

  #serve(socket) {
    socket.on("error", () => {});
    if (this.refuses) {
      this.tries++;
      return socket.destroy();
    }
    const lines = new Lines();
    let session;
    let { into: left = Infinity, out = Infinity } = this.breaks() ?? {};
    socket.put = (line) => {
      if (out <= 0) return;
      socket.write(line.slice(0, out)); // which has no characters of several bytes
      out -= line.length;
      if (out <= 0) socket.destroySoon();
    };
    socket.on("data", (chunk) => {
      if (out <= 0) return;
      const part = chunk.subarray(0, Math.max(left, 0));
      left -= chunk.length;
      for (const line of lines.split(part)) {
        const command = JSON.parse(line);
        if (!session) session = this.#welcome(socket, command);
        else if (session.socket === socket) this.#take(session, command);
      }
      if (left <= 0) socket.destroy();
    });
  }

  #welcome(socket, { hello }) {
    const known = this.#sessions.get(hello.resume);
    if (known) {
      known.socket?.destroy();
      known.socket = socket;
      this.#took(known, hello.lines);
      this.#put(socket, this.#reply({ hello }, { welcome: { ...this.#who(known), resumed: known.lines } }));
      this.#put(socket, { event: "took", lines: Math.max(0, known.lines - 3) }); // from before it broke
      for (const line of known.kept) socket.put(line);
      return known;
    }
    if (this.isTaken?.()) {
      this.#put(socket, this.#reply({ hello }, { error: { code: "refused", reason: "x is taken", ran: "no" } }));
      return { kept: [] };
    }
    const session = { key: `key ${++this.#last}`, name: hello.name, socket, lines: 0, first: 0, kept: [], groups: [] };
    if (hello.grace) this.#sessions.set(session.key, session);
    this.#take(session, { hello });
    return session;
  }

  #who({ key, name }) {
    return { client: name, node: "a", cluster: "shop", build: "0.1.0", resume: key };
  }

  #took(session, lines) {
    const sent = session.first + session.kept.length;
    assert.ok(lines >= session.first && lines <= sent, `took ${lines} of ${session.first} to ${sent}`);
    session.kept.splice(0, lines - session.first);
    session.first = lines;
  }

  #put(socket, event) {
    socket.put(JSON.stringify(event) + "\n");
  }

  #say(session, event) {
    const line = JSON.stringify(event) + "\n";
    session.kept.push(line);
    session.socket?.put(line);
  }

  #reply(command, more) {
    const [[op, { id }]] = Object.entries(command);
    return { event: "reply", op, id, ...more };
  }

  #take(session, command) {
    if (command.took) return this.#took(session, command.took.lines);
    this.taken.push(command);
    session.lines++;
    const reply = (more) => this.#say(session, this.#reply(command, more));
    const [[op, fields]] = Object.entries(command);
    if (op === "hello") reply({ welcome: this.#who(session) });
    else if (op === "add") reply({ value: (this.#sum += fields.by), version: 1 });
    else if (op === "lock") reply({ token: 7 });
    else if (op === "lead") return; // it waits without end
    else if (op === "send") {
      const { group, payload } = fields;
      this.#say(session, { event: "message", group, view: "1.1", sender: "a/x", seq: 1, payload });
    } else if (op === "send_bundle") {
      const { group, payloads } = fields;
      this.#say(session, { event: "bundle", group, view: "1.1", sender: "a/x", seq: 1, payloads });
    } else if (op === "leave" && !fields.group) session.socket.end();
    else if (op !== "answer" && op !== "cancel") reply();
    if (op === "join")
      this.#say(session, { event: "view", group: fields.group, id: "1.1", members: ["a/x"], joined: ["a/x"],
        left: [], crashed: [], transitional: [], primary: true });
    if (session.lines % SAY_LINES === 0 || command.send?.payload.length > SAY_BYTES)
      session.socket.put(JSON.stringify({ event: "took", lines: session.lines }) + "\n");
  }
}
