#!/usr/bin/env node
/** The driver of this client: see ../conformance/README.md. */

import { isUtf8 } from "node:buffer";
import net from "node:net";
import { AntiphonError, connect, ConnectionLost } from "./src/index.js";
import { decode, Lines, parse } from "./src/lines.js";

const LONG = ["connect", "lock", "lead", "call"]; // what may wait for others does not hold up what follows

/** As JSON: bytes as payloads, whole numbers with all their digits. */
function say(line) {
  const plain = (_, of) => (typeof of === "bigint" ? `\u0001${of}` : of);
  console.log(JSON.stringify(ready(line), plain).replace(/"\\u0001(-?\d+)"/g, "$1"));
}

function ready(of) {
  if (of instanceof Uint8Array) return isUtf8(of) ? of.toString() : { base64: of.toString("base64") };
  if (of instanceof AntiphonError) {
    const { code, reason, ran, version, payload, failures } = of;
    return ready({ code, reason, ran, version, payload, failures: failures.size ? failures : undefined });
  }
  if (of instanceof Map) return ready(Object.fromEntries(of));
  if (Array.isArray(of) || typeof of !== "object" || of === null) return of;
  return Object.fromEntries(Object.entries(of).map(([key, one]) => [key, ready(one)]));
}

/** A gate that is open or not. */
class Flow {
  resume() {
    this.open?.();
    this.paused = undefined;
  }

  pause() {
    this.paused = new Promise((resolve) => (this.open = resolve));
  }
}

let client, groups, held, flows, socket;

const dial = net.connect;
net.connect = (...where) => (socket = dial(...where)); // the client's, for `cut`

const doings = {
  async connect({ address, name, grace }) {
    client = await connect(address, { name, graceMs: ms(grace) });
    [groups, held, flows] = [{}, {}, {}];
    return { member: client.member };
  },
  cut: () => void socket.destroy(),
  close: () => client.close(),
  members: async () => ({ nodes: (await client.members()).names }),
  why: async ({ node }) => ({ facts: await client.why(node) }),
  async join({ group }) {
    groups[group] = await client.join(group);
    flows[group] = new Flow();
    follow(groups[group], { group }, flows[group]);
  },
  leave: ({ group }) => groups[group].leave(),
  send: ({ group, payload, safe, wait }) => groups[group].send(given(payload), { safe, wait }),
  send_bundle: ({ group, payloads, safe, wait }) => groups[group].sendBundle(payloads.map(given), { safe, wait }),
  pause: ({ group }) => flows[group].pause(),
  resume: ({ group }) => flows[group].resume(),
  lock: async ({ name, within }) => hold("lock", name, await client.lock(name, { withinMs: ms(within) })),
  unlock: ({ name }) => held[name].unlock(),
  lead: async ({ name }) => hold("lead", name, await client.lead(name)),
  resign: ({ name, to }) => held[name].resign({ to }),
  get: ({ map, key, latest }) => client.map(map).get(key, { latest }),
  async put({ map, key, value, if_version: ifVersion, ttl }) {
    return { version: await client.map(map).put(key, given(value), { ifVersion, ttlMs: ms(ttl) }) };
  },
  remove: ({ map, key, if_version: ifVersion }) => client.map(map).remove(key, { ifVersion }),
  async watch({ map, key, prefix }) {
    follow(await client.map(map).watch({ key, prefix }), { map });
  },
  add: async ({ counter, by }) => ({ value: await client.counter(counter).add(by) }),
  async take_ids({ count }) {
    const ids = await client.takeIds(count);
    return { first: ids[0], count: ids.length };
  },
  serve: ({ group, verb, how }) =>
    client.serve(group, verb, async (request) => {
      say({ event: "request", group, verb });
      if (how === "never") await new Promise(() => {});
      if (how === "error") throw new Error("no");
      return how === "echo" ? request.payload : client.member;
    }),
  call: ({ group, verb, to, payload, within }) =>
    client.call(group, verb, given(payload ?? ""), { to, withinMs: ms(within) }).then(({ replies, failures }) => ({
      replies: new Map([...replies].map(([node, reply]) => [node, reply.payload])),
      failures,
    })),
};

const ms = (seconds) => (seconds === undefined ? undefined : seconds * 1000);
const given = (payload) => (typeof payload === "string" ? payload : decode(payload));

function hold(what, name, guard) {
  held[name] = guard;
  const tell = () => say({ event: "lost", what, name, cause: guard.lost.reason.reason });
  if (guard.lost.aborted) tell();
  else guard.lost.addEventListener("abort", tell);
  return { token: guard.token };
}

async function follow(events, of, flow) {
  try {
    for await (const { type, ...event } of events) {
      say({ event: type, ...of, ...event });
      await flow?.paused;
    }
  } catch (error) {
    if (error instanceof ConnectionLost) say({ event: "connection_lost", ...of, cause: error.cause });
    else say({ event: "lost", what: "watch", ...of, cause: error.reason });
  }
}

async function obey({ id, do: what, ...command }) {
  try {
    say({ id, ok: (await doings[what](command)) ?? null });
  } catch (error) {
    if (error instanceof AntiphonError) say({ id, error });
    else say({ id, error: { code: "driver", reason: String(error), ran: "maybe" } });
  }
}

const lines = new Lines();
for await (const chunk of process.stdin) {
  for (const line of lines.split(chunk)) {
    const command = parse(line);
    if (LONG.includes(command.do) || command.wait) obey(command);
    else await obey(command);
  }
}
process.exit();
