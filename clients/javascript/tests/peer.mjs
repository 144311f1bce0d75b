/** An agent that follows a script. */

import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { Lines } from "../src/lines.js";

export const WITHIN_MS = 10_000;

export class Peer {
  #lines = [];
  #woken = () => {};
  taken = 0; // lines

  /** Takes one connection, answers its hello, with `more` in the welcome, and then does what `play` says. */
  static async start(play, more = {}) {
    const peer = new Peer();
    peer.welcome = { client: "x", node: "a", cluster: "shop", build: "0.1.0", ...more };
    const server = net.createServer((socket) => {
      server.close();
      peer.played = peer.#play(socket, play);
      peer.played.catch(() => {}); // a test looks at it later
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    peer.address = `127.0.0.1:${server.address().port}`;
    return peer;
  }

  async #play(socket, play) {
    this.socket = socket;
    const lines = new Lines();
    socket.on("data", (chunk) => {
      for (const line of lines.split(chunk)) this.#lines.push(JSON.parse(line));
      this.#woken();
    });
    socket.on("error", () => {});
    try {
      await this.reply("hello", { welcome: this.welcome });
      await play(this);
    } finally {
      socket.end();
    }
  }

  async heard(op) {
    const timer = setTimeout(() => this.#woken((this.late = true)), WITHIN_MS);
    while (!this.#lines.length && !this.late) await new Promise((resolve) => (this.#woken = resolve));
    clearTimeout(timer);
    const line = this.#lines.shift() ?? {};
    assert.deepEqual(Object.keys(line), [op]);
    this.taken++;
    return line[op];
  }

  say(...events) {
    return this.socket.write(events.map((event) => JSON.stringify(event) + "\n").join(""));
  }

  async reply(op, fields = {}) {
    const asked = await this.heard(op);
    this.say({ event: "reply", op, id: asked.id, ...fields });
    return asked;
  }
}
