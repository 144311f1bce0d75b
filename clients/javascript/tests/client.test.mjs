/** The client, with an agent that follows a script. */

import assert from "node:assert/strict";
import fs from "node:fs";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, ConnectionLost } from "../src/index.js";
import { decode } from "../src/lines.js";
import { Peer, WITHIN_MS } from "./peer.mjs";

const VIEW = { event: "view", group: "g", id: "1.1", members: ["a/x"], joined: ["a/x"], left: [], crashed: [],
  transitional: [], primary: true };
const message = (seq, payload = "x".repeat(1000)) =>
  ({ event: "message", group: "g", view: "1.1", sender: "a/x", seq, payload });
const messages = Array.from({ length: 1000 }, (_, seq) => message(seq));

function story(name, play, tell, options) {
  test(name, { timeout: 2 * WITHIN_MS }, async () => {
    const peer = await Peer.start(play);
    const client = await connect(peer.address, options);
    await tell(client, peer);
    await client.close();
    await peer.played;
  });
}

async function all(events) {
  const told = [];
  for await (const event of events) told.push(event);
  return told;
}

story("a reply behind a full group is reached when its reader waits for it", async (peer) => {
  await peer.reply("join");
  peer.say(VIEW, ...messages);
  await peer.reply("lock", { token: "9223372036854775809" });
  await peer.reply("unlock");
  await peer.heard("leave");
}, async (client) => {
  const group = await client.join("g");
  assert.equal((await group.nextEvent(WITHIN_MS)).type, "view");
  const lock = await client.lock("till");
  assert.equal(lock.token, 9223372036854775809n);
  await lock.unlock();
  for (const { seq } of messages) assert.equal((await group.nextEvent(WITHIN_MS)).seq, seq);
}, { bufferBytes: 10_000 });

story("replies in any order find what was asked, and an error what went wrong", async (peer) => {
  const first = await peer.heard("add");
  const second = await peer.heard("add");
  assert.deepEqual(first, { counter: "c", by: 1, id: first.id });
  peer.say({ event: "reply", op: "add", id: second.id, value: 3, version: 1 },
    { event: "reply", op: "add", id: first.id, value: 1, version: 2 });
  const put = await peer.heard("put");
  assert.deepEqual(put, { map: "m", key: "k", value: "v", if_version: "9007199254740993", ttl: "250ms", id: put.id });
  peer.socket.write(`{"event":"reply","op":"put","id":${put.id},"version":9007199254740995,` +
    '"error":{"code":"conflict","reason":"k has another version","ran":"no"}}\n');
  const ids = await peer.heard("take_ids");
  peer.say({ event: "error", reason: "count", request: { take_ids: ids } });
  const why = await peer.heard("why");
  await peer.heard("why");
  peer.say({ event: "why", node: "a", facts: ["joined"] }, { event: "error", reason: "no", request: { why } });
  await peer.heard("leave");
}, async (client) => {
  const counter = client.counter("c");
  assert.deepEqual(await Promise.all([counter.add(), counter.add(2)]), [1n, 3n]);
  const put = client.map("m").put("k", "v", { ifVersion: 9007199254740993n, ttlMs: 250 });
  await assert.rejects(put, { name: "AntiphonError", code: "conflict", ran: "no", version: 9007199254740995n });
  await assert.rejects(client.takeIds(-1), { code: "refused", reason: "count" });
  const [facts, error] = await Promise.allSettled([client.why("a"), client.why("b")]);
  assert.deepEqual(facts.value, ["joined"]);
  assert.equal(error.reason.code, "refused");
});

story("a group is told in one stream until it is over", async (peer) => {
  await peer.reply("join");
  peer.say(VIEW, message(1, { base64: "/wD+" }), { event: "something new", group: "g" },
    { event: "refused", group: "g", reason: "no", fatal: false, request: { send: { group: "g", payload: "p" } } },
    { event: "lost", what: "group", name: "g", cause: "slow: why" }, message(2));
  await peer.reply("join");
  peer.say(VIEW, message(3));
  await peer.reply("leave");
  peer.say(message(4), { event: "group_left", group: "g" });
  await peer.heard("leave");
}, async (client) => {
  const group = await client.join("g");
  const [view, bytes, refused, lost, ...more] = await all(group);
  assert.deepEqual([view.members, view.causes, more], [["a/x"], {}, []]);
  assert.deepEqual(bytes.payload, Buffer.of(255, 0, 254));
  assert.deepEqual([refused.reason, refused.text, lost.cause], ["no", "p", "slow: why"]);
  await assert.rejects(group.send("x"), { code: "not_held", ran: "no" });
  await group.leave();
  const again = await client.join("g");
  await assert.rejects(client.join("g"), { code: "refused" });
  await again.leave();
  assert.deepEqual(await all(again), []);
});

story("a bundle is told as messages with their parts", async (peer) => {
  assert.equal((await peer.reply("join")).bundles, true);
  const payloads = ["one", { base64: "/wD+" }, "", "grüße"];
  peer.say({ event: "bundle", group: "g", view: "1.1", sender: "a/x", seq: 7, safe: true, payloads },
    message(8, "alone"), { ...message(9, "part"), part: 3 });
  await peer.heard("leave");
}, async (client) => {
  const group = await client.join("g");
  const told = [];
  while (told.length < 6) told.push({ ...await group.nextEvent(WITHIN_MS) });
  const of = (seq, part, payload, safe = false) =>
    ({ type: "message", group: "g", view: "1.1", sender: "a/x", seq, part, payload: Buffer.from(payload), safe });
  assert.deepEqual(told, [of(7, 0, "one", true), of(7, 1, [255, 0, 254], true), of(7, 2, "", true),
    of(7, 3, "grüße", true), of(8, 0, "alone"), of(9, 3, "part")]);
});

story("a refused message that does not come back has no payload", async (peer) => {
  await peer.reply("join");
  for (const request of [{ send: { group: "g" } }, { send_bundle: { group: "g" } }, { send: {} }, { send: { payload: "" } }])
    peer.say({ event: "refused", group: "g", reason: "no", fatal: false, request });
  await peer.heard("leave");
}, async (client) => {
  const group = await client.join("g");
  for (const payload of [null, null, null, Buffer.of()]) {
    const refused = await group.nextEvent(WITHIN_MS);
    assert.deepEqual({ ...refused }, { type: "refused", group: "g", reason: "no", payload });
    assert.equal(refused.text, payload && "");
  }
});

story("several payloads are said in one line, and refused one by one", async (peer) => {
  await peer.reply("join");
  const asked = await peer.reply("send_bundle");
  assert.deepEqual(asked, { group: "g", payloads: ["one", { base64: "/wD+" }, ""], safe: true, id: asked.id });
  const told = await peer.heard("send_bundle");
  assert.deepEqual(told, { group: "g", payloads: ["two", { base64: "/w==" }] });
  peer.say({ event: "refused", group: "g", reason: "no", fatal: false, request: { send_bundle: told } });
  await peer.heard("leave");
}, async (client) => {
  const group = await client.join("g");
  await group.sendBundle(["one", new Uint8Array([255, 0, 254]), ""], { safe: true, wait: true });
  await group.sendBundle(["two", new Uint8Array([255])]);
  for (const payload of [Buffer.from("two"), Buffer.of(255)])
    assert.deepEqual({ ...await group.nextEvent(WITHIN_MS) }, { type: "refused", group: "g", reason: "no", payload });
  await assert.rejects(group.sendBundle([]), { code: "refused", ran: "no" });
});

story("what is too long for a line is refused before it is said, and leaves nothing behind", async (peer) => {
  await peer.reply("add", { value: 1 });
  await peer.heard("leave");
}, async (client) => {
  const long = "x".repeat(4 << 20);
  const refused = { name: "AntiphonError", code: "refused", reason: /the agent takes 4194304/, ran: "no" };
  for (let time = 0; time < 2; time++) {
    await assert.rejects(client.join(long), refused);
    await assert.rejects(client.serve("g", long, () => {}), refused);
    await assert.rejects(client.lock(long), refused);
    await assert.rejects(client.map("m").put(long, "v"), refused);
    await assert.rejects(client.command("flush", { key: long }, "all", { reply: false }), refused);
    await assert.rejects(client.why(long), refused);
  }
  assert.equal(await client.counter("c").add(), 1n);
});

const zeros = "\0".repeat(253);
const bundles = [Array(4096).fill(zeros), Array(4096).fill(Buffer.from(zeros)),
  [...Array(4095).fill("\0".repeat(122)), "\0".repeat(540_000)]];

story("no bundle within its bounds makes a command that is too long", async (peer) => {
  await peer.reply("join");
  for (const payloads of bundles) {
    const said = await peer.reply("send_bundle");
    assert.deepEqual(said.payloads.map(decode), payloads.map((payload) => Buffer.from(payload)));
  }
  await peer.heard("leave");
}, async (client) => {
  const group = await client.join("g");
  for (const payloads of bundles) await group.sendBundle(payloads, { wait: true });
});

story("a loop may be left and gone on with; a time limit takes nothing", async (peer) => {
  await peer.reply("join");
  peer.say(VIEW, message(1));
  await peer.reply("lock", { token: 1 });
  peer.say(message(2));
  await peer.heard("leave");
}, async (client) => {
  const group = await client.join("g");
  for await (const { type } of group) if (type === "view") break;
  for await (const { seq } of group) if (seq === 1) break;
  await assert.rejects(group.nextEvent(5), { code: "timeout" });
  await client.lock("till");
  assert.equal((await group.nextEvent(WITHIN_MS)).seq, 2);
});

test("a time without end, or of weeks, is waited for", { timeout: 2 * WITHIN_MS }, async () => {
  for (const ms of [Infinity, 2 ** 31]) {
    const peer = await Peer.start(async () => {
      await peer.reply("join");
      await sleep(50);
      peer.say(VIEW);
      await peer.heard("leave");
    });
    const reply = peer.reply.bind(peer);
    peer.reply = async (op, fields) => {
      await sleep(50);
      return reply(op, fields);
    };
    const client = await connect(peer.address, { timeoutMs: ms });
    const group = await client.join("g");
    assert.equal((await group.nextEvent(ms)).type, "view");
    await client.close();
    await peer.played;
  }
});

story("a lock is lost right behind its grant", async (peer) => {
  const { id } = await peer.reply("lock", { token: 7 });
  peer.say({ event: "lost", what: "lock", name: "till", token: 7, id, cause: "lease" });
  await peer.heard("leave");
}, async (client) => {
  const lock = await client.lock("till", { withinMs: 5000 });
  if (!lock.lost.aborted) await new Promise((resolve) => lock.lost.addEventListener("abort", resolve));
  assert.equal(lock.lost.reason.reason, "lease");
  await lock[Symbol.asyncDispose](); // nothing to give back
});

story("a lock is not held after unlock, and a job is led until it is handed over", async (peer) => {
  const error = { code: "unavailable", reason: "no majority", ran: "maybe" };
  await peer.reply("lock", { token: 7 });
  await peer.reply("unlock", { error });
  await peer.reply("lead", { token: 8 });
  await peer.reply("resign", { error });
  await peer.reply("resign", { error });
  await peer.heard("leave");
}, async (client) => {
  const lock = await client.lock("till");
  await assert.rejects(lock.unlock(), { code: "unavailable", ran: "maybe" });
  assert.equal(lock.isHeld, false);
  await lock[Symbol.asyncDispose](); // nothing to give back
  const leadership = await client.lead("job");
  await assert.rejects(leadership.resign({ to: "b" }), { code: "unavailable" });
  assert.equal(leadership.isHeld, true);
  await assert.rejects(leadership.resign(), { code: "unavailable" });
  assert.equal(leadership.isHeld, false);
});

story("a wait that is aborted gives back what was granted meanwhile", async (peer) => {
  const { id } = await peer.heard("lock");
  peer.aborted.abort(new Error("enough"));
  assert.deepEqual(await peer.heard("cancel"), { of: id });
  peer.say({ event: "reply", op: "lock", id, token: 7 });
  const unlock = await peer.reply("unlock");
  assert.equal(unlock.token, "7");
  peer.unlocked();
  await peer.heard("leave");
}, async (client, peer) => {
  peer.aborted = new AbortController();
  const unlocked = new Promise((resolve) => (peer.unlocked = resolve));
  await assert.rejects(client.lock("till", { signal: peer.aborted.signal }), /enough/);
  await assert.rejects(client.lead("job", { signal: peer.aborted.signal }), /enough/, "nothing is asked");
  await unlocked;
});

story("requests are answered one after the other", async (peer) => {
  peer.answered = new Promise((resolve) => (peer.done = resolve));
  await peer.reply("serve");
  for (const [number, payload] of [[1, "yes"], [2, "fail"], [3, "number"]])
    peer.say({ event: "request", group: "g", request: number, verb: "v", from: "b", payload, within_ms: 1500 });
  assert.deepEqual(await peer.heard("answer"), { request: 1, payload: "YES of b, 1500 ms" });
  assert.deepEqual(await peer.heard("answer"), { request: 2, error: "not this" });
  assert.match((await peer.heard("answer")).error, /a payload is/);
  peer.done();
  await peer.heard("leave");
}, async (client, peer) => {
  await client.serve("g", "v", async ({ text, sender, withinMs }) => {
    if (text === "number") return 7;
    if (text === "fail") throw new Error("not this");
    await sleep(1);
    return `${text.toUpperCase()} of ${sender}, ${withinMs} ms`;
  });
  await assert.rejects(client.serve("g", "v", () => {}), { code: "refused" });
  await peer.answered;
});

story("an answer that is too long is an error to the caller", async (peer) => {
  peer.answered = new Promise((resolve) => (peer.done = resolve));
  await peer.reply("serve");
  await peer.reply("serve_command");
  const lengths = ["59744", "59745", "fail", "bytes"];
  for (const [at, payload] of lengths.entries())
    peer.say({ event: "request", group: "g", request: at, verb: "v", from: "b", payload, within_ms: 1500 });
  assert.equal((await peer.heard("answer")).payload.length, 59744);
  for (const [at, bytes] of [[1, 59746], [2, 60000], [3, 59745]]) {
    const error = `the answer has ${bytes} bytes, and may have 59744`;
    assert.deepEqual(await peer.heard("answer"), { request: at, error });
  }
  for (const length of [1 << 20, (1 << 20) + 1])
    peer.say({ event: "command", request: length, verb: "v", from: "b", args: { length }, within_ms: 1500 });
  assert.equal((await peer.heard("answer")).payload.base64.length, Math.ceil((1 << 20) / 3) * 4);
  assert.equal((await peer.heard("answer")).error, "the answer has 1048577 bytes, and may have 1048576");
  peer.done();
  await peer.heard("leave");
}, async (client, peer) => {
  await client.serve("g", "v", ({ text }) => {
    if (text === "fail") throw new Error("x".repeat(60_000));
    if (text === "bytes") return new Uint8Array(59_745);
    return text === "59745" ? "x".repeat(59_744) + "\u00e4" : "x".repeat(59_744);
  });
  await client.serveCommand("v", ({ args: { length } }) => new Uint8Array(length));
  await peer.answered;
});

story("commands go to peers, and come from them", async (peer) => {
  const all = await peer.reply("command", { replies: { a: "done" }, failures: {
    b: { code: "lost", reason: "it is gone", ran: "maybe" } } });
  assert.deepEqual(all, { verb: "flush", args: { key: "x", by: "17", now: true }, to: "all", by: "udp",
    within: "2000ms", id: all.id });
  const handed = await peer.reply("command");
  assert.deepEqual(handed, { verb: "flush", args: {}, to: ["a", "b"], reply: false, id: handed.id });
  await peer.reply("command", { error: { code: "failed", reason: "no node did it", ran: "no" },
    failures: { b: { code: "refused", reason: "not in its list", ran: "no" } } });
  await peer.reply("commands", { commands: { list: 3 } });
  await peer.reply("serve_command");
  peer.say({ event: "command", request: 4, verb: "flush", from: "b", args: { depth: 1, key: "x" }, within_ms: 1990 });
  assert.deepEqual(await peer.heard("answer"), { request: 4, payload: "x of b, 1 deep, 1990 ms" });
  peer.done();
  await peer.heard("leave");
}, async (client, peer) => {
  const answered = new Promise((resolve) => (peer.done = resolve));
  const args = { key: "x", by: "17", now: true };
  const { replies, failures } = await client.command("flush", args, "all", { by: "udp", withinMs: 2000 });
  assert.equal(replies.get("a").text, "done");
  assert.deepEqual([failures.get("b").code, failures.get("b").ran], ["lost", "maybe"]);
  assert.equal((await client.command("flush", {}, ["a", "b"], { reply: false })).replies.size, 0);
  const refused = await client.command("flush", {}, "any").catch((error) => error);
  assert.deepEqual([refused.code, refused.ran, refused.failures.get("b").code], ["failed", "no", "refused"]);
  assert.deepEqual(await client.commands(), { list: 3 });
  await client.serveCommand("flush", ({ args: { key, depth }, sender, withinMs }) =>
    `${key} of ${sender}, ${depth} deep, ${withinMs} ms`);
  await assert.rejects(client.serveCommand("flush", () => {}), { code: "refused" });
  await answered;
});

story("a watch begins with what is there and may be lost", async (peer) => {
  const { id } = await peer.reply("watch");
  peer.say({ event: "watching", map: "m", id, entries: 1 },
    { event: "changed", map: "m", id, key: "u/1", value: "v", version: 7 },
    { event: "changed", map: "m", id, key: "u/1", value: null, version: 8, gone: "expired" },
    { event: "lost", what: "watch", name: "m", id, cause: "no majority" });
  const second = await peer.reply("watch");
  assert.deepEqual(await peer.heard("cancel"), { of: second.id });
  await peer.heard("leave");
}, async (client) => {
  const watch = await client.map("m").watch({ prefix: "u/" });
  const told = [];
  await assert.rejects(async () => { for await (const event of watch) told.push(event); }, { code: "lost" });
  assert.deepEqual(told[0], { type: "watching", entries: 1 });
  assert.deepEqual(told.slice(1).map(({ type, key, text, version, gone }) => [type, key, text, version, gone]),
    [["changed", "u/1", "v", 7n, undefined], ["changed", "u/1", null, 8n, "expired"]]);
  const all = await client.map("m").watch();
  await all.close();
  assert.equal(await all.nextEvent(), undefined);
});

story("a lost connection is told to all that wait, behind what was told before", async (peer) => {
  await peer.reply("join");
  await peer.reply("lock", { token: 7 });
  await peer.heard("add");
  peer.say(VIEW, { event: "refused", group: null, reason: "8192 programs are served", fatal: true });
}, async (client) => {
  const group = await client.join("g");
  const lock = await client.lock("till");
  const cause = "8192 programs are served";
  await assert.rejects(client.counter("c").add(), { name: "ConnectionLost", code: "connection", ran: "maybe", cause });
  assert.equal((await group.nextEvent()).type, "view");
  await assert.rejects(all(group), ConnectionLost);
  assert.equal(lock.lost.reason.reason, cause);
  await assert.rejects(client.members(), { ran: "no", cause });
});

test("an agent that is not there, or says nothing, is an error that says so", { timeout: WITHIN_MS }, async () => {
  await assert.rejects(connect("127.0.0.1:1"), { code: "connection", ran: "no", cause: /ECONNREFUSED/ });
  await assert.rejects(connect("unix:/nowhere/a.sock"), { cause: /ENOENT/ });
  const peer = await Peer.start(() => {});
  peer.reply = () => new Promise(() => {});
  await assert.rejects(connect(peer.address, { timeoutMs: 50 }), { cause: /did not answer within 50 ms/ });
});

const golden = new URL("../../../crates/antiphon-api/golden/events.txt", import.meta.url);
const skip = fs.existsSync(golden) ? false : "not in the repository";
test("every event of the agent's golden file is taken", { skip, timeout: WITHIN_MS }, async () => {
  // A client is told no payload in a file.
  const lines = fs.readFileSync(golden, "utf8").split("\n").filter((line) => /^\{(?!.*"file")/.test(line));
  const peer = await Peer.start(async () => {
    await peer.reply("join");
    await peer.reply("join");
    // The file has replies to ids as small as these.
    for (let id = 0; id < 10; id++) await peer.reply("add", { value: 1 });
    peer.socket.write(lines.join("\n") + "\n");
    await peer.reply("add", { value: 1 });
    await peer.heard("leave");
  });
  const client = await connect(peer.address);
  await client.join("chat");
  await client.join("g");
  for (let id = 0; id <= 10; id++) await client.counter("c").add();
  await client.close();
  await peer.played;
});
