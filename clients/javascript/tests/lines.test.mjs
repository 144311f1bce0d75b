/** The protocol without a socket. */

import assert from "node:assert/strict";
import test from "node:test";
import { address, decode, encode, format, Lines, parse, span } from "../src/lines.js";

test("a line may come in pieces, and several in one", () => {
  const lines = new Lines();
  const whole = Buffer.from('{"event":"message","payload":"grüße 🎉"}\n{"event":"left"}\n\n');
  const expected = whole.toString().split("\n").slice(0, -1);
  const bytewise = [...whole].flatMap((byte) => [...lines.split(Buffer.of(byte))]);
  assert.deepEqual(bytewise.map(String), expected);
  assert.deepEqual([...lines.split(whole)].map(String), expected);
});

test("a line without an end is refused", () => {
  const lines = new Lines();
  assert.throws(() => {
    for (let i = 0; i < 70; i++) [...lines.split(Buffer.alloc(1 << 20, "x"))];
  }, /more than 67108864 bytes/);
});

test("numbers of 64 bits keep their digits, and texts that look like them stay as they are", () => {
  const text = String.raw`{"token":18446744073709551615,"value":"{\"token\":18446744073709551615,\\","by" : -9223372036854775808,"seq":7}`;
  assert.deepEqual(parse(text), {
    token: "18446744073709551615",
    value: '{"token":18446744073709551615,\\',
    by: "-9223372036854775808",
    seq: 7,
  });
  assert.equal(format("add", { counter: '","by":"1"', by: -9223372036854775808n, id: 1 }),
    String.raw`{"add":{"counter":"\",\"by\":\"1\"","by":-9223372036854775808,"id":1}}` + "\n");
  assert.equal(format("unlock", { name: "x", token: 1n << 63n }),
    '{"unlock":{"name":"x","token":"9223372036854775808"}}\n');
});

test("numbers of 64 bits keep their digits under any name that an argument of a command may have", () => {
  const text = String.raw`{"args":{"order-id":9007199254740993,"order.id":-9007199254740993,"note":"{\"a-b\":9007199254740993"}}`;
  assert.deepEqual(parse(text).args, {
    "order-id": "9007199254740993",
    "order.id": "-9007199254740993",
    note: String.raw`{"a-b":9007199254740993`,
  });
});

test("payloads come back as they were, and no allowed one makes a command that is too long", () => {
  const large = ["\u0001".repeat(1048570), "ä".repeat(524285), new Uint8Array(1048570).fill(255)];
  for (const payload of [...large, "", "Ωμέγα 🎉 \u0000", new Uint8Array([255, 0, 254]).subarray(1)]) {
    const line = format("send", { group: "g", payload: encode(payload) });
    assert.deepEqual(decode(JSON.parse(line).send.payload), Buffer.from(payload));
  }
  assert.throws(() => encode(7), TypeError);
  const reason = "put has 5242899 bytes, and the agent takes 4194304: make it shorter";
  assert.throws(() => format("put", { key: "x".repeat(5 << 20) }), { code: "refused", reason, ran: "no" });
  assert.equal(format("why", { node: "\ud800" }), '{"why":{"node":"\ufffd"}}\n', "half a character is no UTF-8");
});

test("times and addresses are written as the agent and net.connect read them", () => {
  assert.deepEqual([0, 0.1, 2000, undefined].map(span), ["0ms", "1ms", "2000ms", undefined]);
  assert.throws(() => span(-1), RangeError);
  assert.throws(() => span("5s"), RangeError);
  assert.deepEqual(address("unix:/run/a.sock"), { path: "/run/a.sock" });
  assert.deepEqual(address("[::1]:7480"), { host: "::1", port: 7480, noDelay: true });
  assert.throws(() => address("localhost"), /"host:port" or "unix:\/path"/);
});
