/** The bound of what is unread, with a socket that shows whether it is read. */

import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../src/client.js";
import { Connection } from "../src/connection.js";

class Socket extends EventEmitter {
  commands = [];
  reads = true;
  takes = true;

  write(line, sent = () => {}) {
    this.commands.push(JSON.parse(line));
    this.sent = sent;
    return this.takes;
  }

  pause = () => (this.reads = false);
  resume = () => (this.reads = true);
  isPaused = () => !this.reads;
  destroy = () => this.emit("close");

  say(...events) {
    this.emit("data", Buffer.from(events.map((event) => JSON.stringify(event) + "\n").join("")));
  }

  reply(fields) {
    const [[op, { id }]] = Object.entries(this.commands.at(-1));
    this.say({ event: "reply", op, id, ...fields });
  }

  messages(count, bytes = 1000) {
    const payload = "x".repeat(bytes);
    for (let seq = 1; seq <= count; seq++)
      this.say({ event: "message", group: "g", view: "1.1", sender: "a/x", seq, payload });
  }
}

async function joined() {
  const socket = new Socket();
  const client = new Client(new Connection(socket, 10_000), { client: "x", node: "a" });
  const joining = client.join("g");
  socket.reply();
  return { socket, client, group: await joining };
}

test("a group that is not read stops the reading, until it is read", async () => {
  const { socket, group } = await joined();
  socket.messages(6);
  assert.ok(socket.reads);
  socket.messages(6);
  assert.ok(!socket.reads);
  await group.nextEvent();
  assert.ok(!socket.reads);
  for (let i = 0; i < 11; i++) await group.nextEvent();
  assert.ok(socket.reads);
});

test("a bundle stops the reading until its last message is taken", async () => {
  const { socket, group } = await joined();
  const payloads = Array(100).fill("x".repeat(200));
  socket.say({ event: "bundle", group: "g", view: "1.1", sender: "a/x", seq: 7, payloads });
  for (let part = 0; part < 100; part++) {
    assert.ok(!socket.reads);
    assert.equal((await group.nextEvent()).part, part);
  }
  assert.ok(socket.reads);
});

test("the client reads on while the group's reader may wait for a reply, and no longer", async () => {
  const { socket, client, group } = await joined();
  socket.messages(20);
  assert.ok(!socket.reads);
  const adding = client.counter("c").add();
  assert.ok(socket.reads, "the reply is behind the messages");
  socket.messages(20);
  assert.ok(socket.reads);
  socket.reply({ value: 1 });
  assert.equal(await adding, 1n);
  assert.ok(!socket.reads);
  for (let i = 0; i < 40; i++) await group.nextEvent();
  assert.ok(socket.reads);
});

test("a long wait that began before the reader took an event is not what the reader waits for", async () => {
  const { socket, client, group } = await joined();
  const leading = client.lead("job");
  const [, { lead: { id } }] = socket.commands;
  socket.messages(1);
  await group.nextEvent();
  socket.messages(20);
  assert.ok(!socket.reads);
  for (let i = 0; i < 20; i++) await group.nextEvent();
  socket.say({ event: "reply", op: "lead", id, token: 7 });
  assert.equal((await leading).token, 7n);
});

test("a wait that is aborted counts no more", async () => {
  const { socket, client } = await joined();
  const enough = new AbortController();
  const waiting = client.lock("till", { signal: enough.signal });
  socket.messages(20);
  assert.ok(socket.reads);
  enough.abort();
  await assert.rejects(waiting, { name: "AbortError" });
  socket.messages(1);
  assert.ok(!socket.reads);
});

test("a reader may leave another group, which is over behind what it has not read", async () => {
  const { socket, client, group } = await joined();
  const joining = client.join("h");
  socket.reply();
  const other = await joining;
  socket.messages(1);
  await group.nextEvent();
  const leaving = other.leave();
  socket.messages(20);
  socket.reply();
  await sleep();
  socket.messages(20);
  assert.ok(socket.reads);
  socket.say({ event: "group_left", group: "h" });
  await leaving;
  socket.messages(1);
  assert.ok(!socket.reads);
});

test("a group that is over does not stop the reading", async () => {
  const { socket, client, group } = await joined();
  const waiting = client.lock("till");
  socket.messages(20);
  socket.say({ event: "lost", what: "group", name: "g", cause: "slow" });
  const [, { lock: { id } }] = socket.commands;
  socket.say({ event: "reply", op: "lock", id, token: 7 });
  await waiting;
  assert.ok(socket.reads);
  await group.leave();
  assert.equal(await group.nextEvent(), undefined, "what is unread is dropped");
});

test("a watch that is over does not stop the reading", async () => {
  const { socket, client } = await joined();
  const watching = client.map("m").watch();
  socket.reply();
  const watch = await watching;
  const [, { watch: { id } }] = socket.commands;
  const adding = client.counter("c").add();
  for (let version = 1; version <= 20; version++)
    socket.say({ event: "changed", map: "m", id, key: "k", value: "x".repeat(1000), version });
  socket.say({ event: "lost", what: "watch", name: "m", id, cause: "no majority" });
  socket.reply({ value: 1 });
  await adding;
  assert.ok(socket.reads);
  await watch.close();
  await assert.rejects(watch.nextEvent(), { code: "lost" });
});

test("a reply without sense ends the connection, and what it is to, too", { timeout: 10_000 }, async () => {
  const { socket, client } = await joined();
  const adding = assert.rejects(client.counter("c").add(), { code: "connection" });
  const waiting = assert.rejects(client.lock("till"), { code: "connection" });
  socket.reply();
  await adding;
  await Promise.race([waiting, sleep(2000).then(() => assert.fail("the lock waits for ever"))]);
});

test("a reader that waits to send gets what makes room for its message", async () => {
  const { socket, group } = await joined();
  socket.messages(20);
  socket.takes = false;
  const sending = group.send("x");
  assert.ok(socket.reads);
  socket.sent();
  await sending;
  socket.messages(1);
  assert.ok(!socket.reads);
});

test("a reader that waits while too much comes is out of the group", async () => {
  const { socket, client, group } = await joined();
  const adding = client.counter("c").add();
  const [, { add: { id } }] = socket.commands;
  socket.messages(70, 1 << 20);
  assert.deepEqual(socket.commands.at(-1), { leave: { group: "g" } });
  socket.say({ event: "reply", op: "add", id, value: 1 });
  await adding;
  let last, taken = 0;
  for await (const event of group) [last, taken] = [event, taken + 1];
  assert.equal(last.type, "lost");
  assert.equal(taken, 65);
});

test("a group that is left is read to its end", async () => {
  const { socket, group } = await joined();
  socket.messages(20);
  const leaving = group.leave();
  socket.reply();
  socket.messages(20);
  assert.ok(socket.reads);
  socket.say({ event: "group_left", group: "g" });
  await leaving;
  assert.equal(await group.nextEvent(), undefined);
});
