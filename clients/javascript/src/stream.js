/** Events in their order, as an iterator, with a bound. */

import { AntiphonError } from "./errors.js";
import { decode, Said } from "./lines.js";
import { after } from "./timer.js";

const MOST_BYTES = 64 << 20; // of a stream whose reader waits for a reply
const EVENT_BYTES = 500; // about what an object takes beside its line
const PART_BYTES = 32; // and each payload of a bundle

/** Messages that came in one line. Each is made when it is taken. */
export class Bundle {
  #payloads;
  #fields;
  #taken = 0;

  constructor({ payloads, safe = false, ...fields }) {
    this.#payloads = payloads;
    this.#fields = { type: "message", ...fields, safe };
    this.bytes = PART_BYTES * payloads.length;
  }

  take() {
    const part = this.#taken++;
    return new Said({ ...this.#fields, payload: decode(this.#payloads[part]), part });
  }

  get isOver() {
    return this.#taken === this.#payloads.length;
  }
}

/**
 * What a group, a watch or a served verb is told. `taken` is called with the stream after each event that its
 * reader takes; `overrun` with an event for which there is no room any more.
 */
export class Stream {
  bytes = 0;
  takenAt = 0; // the connection's last operation when the reader took its last event
  #first = { next: null }; // a list, since shifting a long array is slow
  #last = this.#first;
  #readers = [];
  #over = false;
  #dropping = false;
  #error;

  constructor(taken, overrun, mostBytes = MOST_BYTES) {
    this.taken = taken;
    this.overrun = overrun;
    this.mostBytes = mostBytes;
  }

  put(event, bytes) {
    if (this.#over || this.#dropping) return;
    if (this.bytes > this.mostBytes) return this.overrun(event);
    this.add(event, bytes);
  }

  /** Without a bound: for what ends a stream. */
  add(event, bytes = 0) {
    bytes += EVENT_BYTES + (event instanceof Bundle ? event.bytes : 0);
    this.#last = this.#last.next = { event, bytes, next: null };
    this.bytes += bytes;
    this.#hand();
  }

  /** What is unread and what follows is of no use any more, but the end is. */
  drop() {
    this.#dropping = true;
    this.#first = this.#last = { next: null };
    this.bytes = 0;
    this.taken(this);
  }

  get isDropped() {
    return this.#dropping;
  }

  get isOver() {
    return this.#over;
  }

  /** Nothing follows; `error` stands behind the last event. */
  end(error) {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    this.#hand();
  }

  /** The next event as of an iterator. */
  next(withinMs) {
    return new Promise((resolve, reject) => {
      const reader = { resolve, reject };
      this.#readers.push(reader);
      this.#hand();
      if (withinMs === undefined || !this.#readers.includes(reader)) return;
      reader.timer = after(withinMs, () => {
        this.#readers.splice(this.#readers.indexOf(reader), 1);
        reject(new AntiphonError("timeout", `nothing came within ${withinMs} ms`));
      });
    });
  }

  #hand() {
    while (this.#readers.length && (this.#first.next || this.#over)) {
      const { resolve, reject, timer } = this.#readers.shift();
      clearTimeout(timer);
      const entry = this.#first.next;
      if (entry) {
        const bundle = entry.event instanceof Bundle ? entry.event : undefined;
        resolve({ value: bundle ? bundle.take() : entry.event, done: false });
        if (!bundle || bundle.isOver) {
          this.#first = entry;
          this.bytes -= entry.bytes;
          entry.event = undefined;
        }
        this.taken(this);
      } else if (this.#error) reject(this.#error);
      else resolve({ value: undefined, done: true });
    }
  }
}
