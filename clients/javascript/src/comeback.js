/** Tries to reach the agent again, after a connection to it broke. */

import { Buffer } from "node:buffer";
import { format, parse } from "./lines.js";

const AGAIN_MS = 100; // between two tries
const MOST_MS = 10_000; // that an agent keeps a client
const MAX_WELCOME_BYTES = 64 << 10;

export class Comeback {
  key; // by which the agent knows this client
  #dial;
  #hello;
  #graceMs;
  #socket; // of the present try
  #timers = [];
  #reason; // why the last try failed

  constructor(dial, hello, graceMs) {
    if (!(graceMs <= MOST_MS)) throw new RangeError(`graceMs is at most ${MOST_MS}, not ${graceMs}`);
    [this.#dial, this.#hello, this.#graceMs] = [dial, hello, graceMs];
  }

  /**
   * Tries until the agent welcomes this client, which has taken so many of its lines. `back` is called with
   * the connection, the welcome and what came behind it; `failed` with a reason if there is none in time.
   */
  begin(lines, back, failed) {
    const line = format("hello", { ...this.#hello, resume: this.key, lines, id: 0 });
    this.#reason = "the agent did not answer";
    this.#wait(this.#graceMs, () => {
      this.stop();
      failed(`it did not come back within ${this.#graceMs} ms: ${this.#reason}`);
    });
    this.#try(line, back);
  }

  stop() {
    for (const timer of this.#timers.splice(0)) clearTimeout(timer);
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.destroy();
  }

  #wait(ms, then) {
    this.#timers.push(setTimeout(then, ms));
  }

  #try(line, back) {
    const socket = (this.#socket = this.#dial());
    let said = Buffer.alloc(0);
    const listeners = {
      error: (error) => (this.#reason = error.message || error.code),
      close: () => this.#socket === socket && this.#wait(AGAIN_MS, () => this.#try(line, back)),
      data: (chunk) => {
        said = Buffer.concat([said, chunk]);
        const end = said.indexOf(10);
        if (end < 0 && said.length <= MAX_WELCOME_BYTES) return;
        const welcome = this.#welcome(said.subarray(0, end));
        if (!welcome) return void socket.off("data", listeners.data).end(format("leave", {})); // it is kept, else
        for (const [event, listener] of Object.entries(listeners)) socket.off(event, listener);
        this.#socket = undefined;
        this.stop();
        this.key = welcome.resume ?? this.key;
        back(socket, welcome, said.subarray(end + 1));
      },
    };
    for (const [event, listener] of Object.entries(listeners)) socket.on(event, listener);
    socket.write(line);
  }

  /** None if this is something else: the name is still taken, the token is wrong, too many are there. */
  #welcome(line) {
    try {
      const { welcome, error, reason } = parse(line);
      this.#reason = error?.reason ?? reason ?? "the agent did not welcome this client";
      return welcome;
    } catch (error) {
      this.#reason = error.message;
    }
  }
}
