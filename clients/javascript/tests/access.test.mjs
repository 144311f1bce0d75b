/** Tokens and TLS. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import tls from "node:tls";
import { connect } from "../src/index.js";
import { Lines } from "../src/lines.js";
import { Peer, WITHIN_MS } from "./peer.mjs";

const TOKEN = "0123456789abcdef0123456789abcdef";
const timeout = WITHIN_MS;

test("the first hello shows the token", { timeout }, async () => {
  const peer = await Peer.start(() => peer.heard("leave"));
  const heard = peer.reply.bind(peer);
  let hello;
  peer.reply = async (op, fields) => (hello = await heard(op, fields));
  const client = await connect(peer.address, { name: "x", token: TOKEN });
  assert.deepEqual(hello, { name: "x", token: TOKEN, id: hello.id });
  await client.close();
  await peer.played;
});

test("a wrong token is an error that says so", { timeout }, async () => {
  const peer = await Peer.start(() => {});
  peer.reply = () => {
    peer.say({ event: "error", reason: "this token is none of the agent's", request: null });
    throw new Error("it ends");
  };
  await assert.rejects(connect(peer.address, { token: TOKEN }), { code: "connection", cause: /none of the agent's/ });
});

const skip = spawnSync("openssl", ["version"]).status === 0 ? false : "no openssl";

test("a host that goes without a word is noticed", { timeout }, async (t) => {
  const { mock } = t.mock.method(net.Socket.prototype, "setKeepAlive");
  const peer = await Peer.start(() => peer.heard("leave"));
  const client = await connect(peer.address);
  assert.deepEqual(mock.calls.map((call) => call.arguments), [[true, 60_000]]);
  await client.close();
  await peer.played;
});

test("an agent that speaks TLS must have a certificate that is trusted", { timeout, skip }, async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "antiphon-"));
  const [keyFile, certFile] = ["key.pem", "cert.pem"].map((name) => path.join(folder, name));
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
    "-subj", "/CN=agent", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", keyFile, "-out", certFile],
    { stdio: "ignore" });
  const [key, cert] = [keyFile, certFile].map((file) => fs.readFileSync(file));
  fs.rmSync(folder, { recursive: true });
  let heard = "";
  const server = tls.createServer({ key, cert }, (socket) => {
    const lines = new Lines();
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      for (const line of lines.split(chunk)) {
        heard += line;
        const { hello } = JSON.parse(line);
        if (!hello) return socket.end();
        const welcome = { client: "x", node: "a", cluster: "shop", build: "0.1.0" };
        socket.write(JSON.stringify({ event: "reply", op: "hello", id: hello.id, welcome }) + "\n");
      }
    });
  });
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = `127.0.0.1:${server.address().port}`;
  try {
    await assert.rejects(connect(address, { token: TOKEN, tls: true }), { code: "connection", cause: /self.signed/ });
    await assert.rejects(connect(address, { token: TOKEN, tls: { ca: cert, servername: "other" } }), /other/);
    assert.equal(heard, "", "nobody else was shown the token");
    const { mock } = t.mock.method(net.Socket.prototype, "setKeepAlive");
    const client = await connect(address, { token: TOKEN, tls: { ca: cert } });
    assert.deepEqual(mock.calls.map((call) => call.arguments), [[true, 60_000]]);
    assert.equal(client.member, "a/x");
    await client.close();
    await assert.rejects(connect("unix:/run/a.sock", { tls: true }), TypeError);
  } finally {
    server.close();
  }
});
