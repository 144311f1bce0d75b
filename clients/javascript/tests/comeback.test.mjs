/** A client that comes back, with an agent whose connections break. */

import assert from "node:assert/strict";
import test from "node:test";
import { connect, ConnectionLost } from "../src/index.js";
import { Ledger } from "../src/ledger.js";
import { Agent } from "./agent.mjs";
import { Peer } from "./peer.mjs";

const TIMEOUT = { timeout: 60_000 };
const GRACE = { name: "x", graceMs: 5000 };

function story(name, tell, options = GRACE) {
  test(name, TIMEOUT, async () => {
    const agent = await Agent.start();
    try {
      await tell(await connect(agent.address, options), agent);
    } finally {
      agent.stop();
    }
  });
}

/** Sends and adds, and checks that all was done once and told once, in order. */
async function converse(agent, count) {
  const client = await connect(agent.address, GRACE);
  const group = await client.join("g");
  const told = (async () => {
    const payloads = [];
    for await (const event of group) {
      if (event.type === "message") payloads.push(event.text);
      else assert.equal(event.type, "view");
      if (payloads.length === count) return payloads;
    }
  })();
  const sums = [];
  for (let i = 0; i < count; i++) {
    await group.send(`message ${i}`);
    sums.push(client.counter("c").add());
  }
  const numbers = Array.from({ length: count }, (_, i) => i);
  assert.deepEqual(await Promise.all(sums), numbers.map((i) => BigInt(i + 1)));
  assert.deepEqual(await told, numbers.map((i) => `message ${i}`));
  await client.close();
  const expected = ["hello", "join", ...numbers.flatMap(() => ["send", "add"])];
  assert.deepEqual(agent.ops().filter((op) => op !== "leave"), expected, "nothing came twice");
}

test("a connection that breaks again and again, at any byte, loses nothing and repeats nothing", TIMEOUT, async () => {
  let seed = 7, broken = 0;
  const random = () => (seed = (seed * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  const budgets = () => ({ into: 300 + Math.floor(random() * 3000), out: 300 + Math.floor(random() * 3000) });
  const agent = await Agent.start(() => (++broken > 60 ? undefined : budgets()));
  await converse(agent, 500);
  assert.ok(broken > 20, `${broken}`);
  agent.stop();
});

for (const [direction, first] of [["into", 48], ["out", 136]])
  test(`a connection that breaks once at each byte that goes ${direction}`, TIMEOUT, async () => {
    for (let bytes = first; bytes < 400; bytes += 3) { // behind the first hello, or its reply
      let connections = 0;
      const agent = await Agent.start(() => (connections++ ? undefined : { [direction]: bytes }));
      await converse(agent, 3);
      agent.stop();
    }
  });

story("a new one is in its groups and serves again, and is told what it lost", async (client, agent) => {
  const group = await client.join("g");
  const watch = await client.map("m").watch({ key: "k" });
  const lock = await client.lock("till");
  let answered;
  const asked = new Promise((resolve) => {
    client.serve("g", "v", () => new Promise((answer) => resolve(() => answer("late"))));
  });
  await client.serveCommand("flush", () => {});
  const leading = client.lead("job").catch((error) => (answered = error));
  await agent.until(() => agent.ops().includes("lead"));
  agent.say({ event: "request", group: "g", request: 1, verb: "v", from: "b", payload: "?", within_ms: 1500 });
  const answer = await asked;
  assert.equal((await group.nextEvent()).type, "view");

  agent.refuses = true;
  agent.forget();
  await agent.until(() => agent.tries);
  const late = client.counter("c").add().catch((error) => error);
  let refusals = 2;
  agent.isTaken = () => refusals-- > 0; // its name, by this client itself
  agent.taken.length = 0;
  agent.refuses = false;

  const again = await group.nextEvent();
  assert.equal(again.type, "resync");
  assert.match(again.cause, /came back as a new one: the agent closed the connection/);
  assert.equal((await group.nextEvent()).type, "view");
  assert.ok(lock.lost.aborted && !lock.isHeld);
  assert.match(lock.lost.reason.reason, /came back as a new one/);
  await assert.rejects(async () => { for await (const _ of watch); }, { code: "lost" });
  await leading;
  assert.deepEqual([answered.name, answered.code, answered.ran], ["AntiphonError", "connection", "maybe"]);
  assert.deepEqual([(await late).code, (await late).ran], ["connection", "no"]);
  answer(); // to a client that is no more: it is not said
  assert.equal(await client.counter("c").add(), 1n);
  await client.close();
  assert.deepEqual(agent.taken.filter(({ hello }) => !hello), [{ join: { group: "g", bundles: true, id: 9 } },
    { serve: { group: "g", verb: "v", id: 10 } }, { serve_command: { verb: "flush", id: 11 } },
    { add: { counter: "c", by: 1, id: 12 } }, { leave: {} }]);
  assert.equal(agent.taken.at(0).hello.name, "x");
});

story("one that breaks again as a new one is resumed as that", async (client, agent) => {
  const group = await client.join("g");
  agent.forget();
  const types = [];
  while (types.length < 3) types.push((await group.nextEvent()).type);
  agent.cut();
  assert.equal(await client.counter("c").add(), 1n);
  assert.deepEqual(types, ["view", "resync", "view"]);
  await client.close();
});

story("a bundle counts as one line on both sides", async (client, agent) => {
  const group = await client.join("g");
  await group.sendBundle(["0", "1"]);
  const told = [await group.nextEvent(), await group.nextEvent()];
  agent.cut();
  await group.sendBundle(["2", "3"]);
  while (told.length < 5) told.push(await group.nextEvent());
  assert.deepEqual(told.map(({ type, text }) => text ?? type), ["view", "0", "1", "2", "3"]);
  await client.close();
  assert.deepEqual(agent.ops(), ["hello", "join", "send_bundle", "send_bundle", "leave"]);
});

story("one that does not come back in time is lost", async (client, agent) => {
  const group = await client.join("g");
  const lock = await client.lock("till");
  const leading = client.lead("job").catch((error) => error);
  await agent.until(() => agent.ops().includes("lead"));
  const began = performance.now();
  agent.stop();
  const cause = /the agent closed the connection; it did not come back within 300 ms: .*ECONNREFUSED/;
  const lost = await leading;
  assert.ok(lost instanceof ConnectionLost && lost.ran === "maybe");
  assert.match(lost.cause, cause);
  assert.ok(performance.now() - began > 290);
  assert.match(lock.lost.reason.reason, cause);
  await assert.rejects(async () => { for await (const _ of group); }, ConnectionLost);
  await assert.rejects(client.members(), { ran: "no", cause });
  await client.close();
}, { name: "x", graceMs: 300 });

story("one that leaves while there is no connection says so when there is", async (client, agent) => {
  agent.refuses = true;
  agent.cut();
  await agent.until(() => agent.tries);
  const closing = client.close();
  agent.refuses = false;
  await closing;
  assert.deepEqual(agent.ops(), ["hello", "leave"]);
});

story("sending waits beyond a mebibyte, and goes on when the agent has taken it", async (client, agent) => {
  const group = await client.join("g");
  agent.refuses = true;
  agent.cut();
  await agent.until(() => agent.tries);
  let sent = 0;
  const sending = (async () => {
    for (; sent < 40; sent++) await group.send("x".repeat(100_000));
  })();
  await agent.until(() => sent === 11);
  const tries = agent.tries;
  await agent.until(() => agent.tries > tries + 1);
  assert.equal(sent, 11);
  agent.refuses = false;
  await sending;
  for (let got = 0; got < 40; ) if ((await group.nextEvent()).type === "message") got++;
  await client.close();
  assert.deepEqual(agent.ops(), ["hello", "join", ...Array(40).fill("send"), "leave"]);
});

test("many that are said at once keep within what the agent accepts", TIMEOUT, async () => {
  const count = 200, atOnce = 16; // of these lines in 1 MiB
  const locks = [];
  const peer = await Peer.start(async () => {
    await peer.reply("join");
    for (let left = count; left > 0; left -= atOnce) await peer.reply("lock", { token: 7 });
    for (let left = count; left > 0; left -= atOnce) {
      const asked = [];
      while (asked.length < Math.min(atOnce, left)) asked.push(await peer.heard("send"));
      const unlocked = locks.pop().unlock(); // which waits for no room: nothing else is before it
      await peer.reply("unlock");
      await unlocked;
      peer.say({ event: "took", lines: peer.taken });
      for (const { id } of asked) if (id) peer.say({ event: "reply", op: "send", id });
    }
    await peer.heard("leave");
  }, { resume: "K" });
  const client = await connect(peer.address, GRACE);
  const group = await client.join("g");
  for (let left = count; left > 0; left -= atOnce) locks.push(await client.lock(`till ${left}`));
  const payload = "x".repeat(64 << 10);
  const sending = Array.from({ length: count }, (_, at) => group.send(payload, { wait: at % 2 === 0 }));
  const enough = new AbortController();
  const locking = client.lock("for which there is no room", { signal: enough.signal });
  enough.abort();
  await assert.rejects(locking, { name: "AbortError" });
  await Promise.race([Promise.all(sending), peer.played]);
  await client.close();
  await peer.played;
});

story("what finds no room was not done when the client is a new one", async (client, agent) => {
  const group = await client.join("g");
  agent.refuses = true;
  agent.forget();
  await agent.until(() => agent.tries);
  const sending = Array.from({ length: 12 }, () => group.send("x".repeat(100_000)));
  const late = client.counter("c").add().catch((error) => error);
  const joining = client.join("h").catch((error) => error);
  agent.refuses = false;
  await assert.rejects(sending.at(-1), { code: "connection", ran: "no" });
  for (const error of await Promise.all([late, joining])) assert.deepEqual([error.code, error.ran], ["connection", "no"]);
  assert.equal(await client.counter("c").add(), 1n);
  await client.join("h");
  await client.close();
});

test("an agent is told at the latest behind 256 lines or 64 KiB, and cannot have taken what was not said", () => {
  const ledger = new Ledger();
  const told = Array.from({ length: 600 }, () => ledger.take(10)).map((said, at) => said && [at + 1, said]);
  assert.deepEqual(told.filter(Boolean), [[256, '{"took":{"lines":256}}\n'], [512, '{"took":{"lines":512}}\n']]);
  assert.equal(ledger.take(64_000), undefined);
  assert.equal(ledger.take(64_000), '{"took":{"lines":602}}\n');
  ledger.keep("1\n");
  ledger.keep("2\n");
  assert.throws(() => ledger.took(1), /took 1 of 0 lines/);
  assert.equal(ledger.again(), "1\n2\n");
  ledger.took(1);
  assert.throws(() => ledger.took("?"), /took \? of 2 lines/);
  ledger.took(0); // said before, and overtaken by `resumed`
  assert.deepEqual([ledger.again(), ledger.ran(2), ledger.ran(3)], ["2\n", "maybe", "no"]);
});

test("times to come back are bounded, and an agent must give them", TIMEOUT, async () => {
  const peer = await Peer.start(() => {});
  await assert.rejects(connect(peer.address, GRACE), { code: "refused", reason: /keeps no clients/ });
  await assert.rejects(connect("127.0.0.1:1", { graceMs: 10_001 }), /at most 10000/);
  await assert.rejects(connect("127.0.0.1:1", GRACE), { code: "connection", cause: /ECONNREFUSED/ });
});
