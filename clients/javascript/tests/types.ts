/** Uses all of the client, for the compiler alone. */

import { AntiphonError, connect, ConnectionLost, type GroupEvent, type Payload, type WatchEvent } from "antiphon";

function tell(event: GroupEvent | WatchEvent): string | null {
  switch (event.type) {
    case "view": return `${event.members.join()} ${event.crashed.map((member) => event.causes[member]).join()}`;
    case "message": return `${event.sender} ${event.seq + event.part} ${event.text} ${event.payload.length} ${event.safe}`;
    case "transitional": return event.members.join();
    case "suspended": return event.group;
    case "resync": return event.cause;
    case "lost": return event.cause;
    case "refused": return `${event.reason} ${event.text}`;
    case "watching": return event.entries.toFixed();
    case "changed": return event.gone ?? `${event.key} ${event.text} ${event.version + 1n}`;
  }
}

export async function all(payload: Payload): Promise<void> {
  await using client = await connect("unix:/run/shop.sock", { name: "ann", timeoutMs: 1000, bufferBytes: 1 << 16 });
  await using guest = await connect("[::1]:7480", { token: "t", tls: { ca: "pem" }, graceMs: 5000 });
  const names: string[] = [client.member, client.name, client.node, client.cluster, client.build];
  {
    await using group = await client.join("chat");
    await group.send(payload, { safe: true, wait: true });
    await group.send(new Uint8Array(3));
    await group.sendBundle([payload, "text", new Uint8Array(3)], { safe: true, wait: true });
    for await (const event of group) names.push(tell(event) ?? "");
    const next: GroupEvent | undefined = await group.nextEvent(10);
    await group.leave();
    console.log(group.name, next);
  }
  {
    await using lock = await client.lock("till", { withinMs: 5000, signal: AbortSignal.timeout(6000) });
    await fetch("http://127.0.0.1/", { headers: { token: `${lock.token}` }, signal: lock.lost });
    if (lock.isHeld) await lock.unlock();
    await using job = await client.lead("report", {});
    await job.resign({ to: "b" });
    await job.resign();
  }
  const map = client.map("prices");
  const version: bigint = await map.put("tea", "3.50", { ifVersion: 0, ttlMs: 10_000 });
  await map.put("tea", payload, { ifVersion: version });
  const item = await map.get("tea", { latest: true });
  names.push(item?.text ?? "none");
  await map.remove("tea", { ifVersion: item?.version ?? version });
  {
    await using watch = await map.watch({ prefix: "t" });
    for await (const event of watch) names.push(tell(event) ?? "");
    await (await map.watch({ key: "tea" })).close();
    await map.watch();
  }
  const value: bigint = (await client.counter("sold").add()) + (await client.counter("sold").add(-1n));
  const [id] = await client.takeIds(10);
  await client.serve("desk", "echo", (request) => request.payload);
  await client.serve("desk", "none", async ({ sender, withinMs, verb, group, text }) => {
    names.push(sender, verb, group, text, withinMs.toFixed());
  });
  try {
    const { replies, failures } = await client.call("desk", "echo", "?", { to: ["a", "b"], withinMs: 100 });
    for (const [node, reply] of replies) names.push(node, reply.text, `${reply.payload.length}`);
    for (const [node, why] of failures) names.push(node, why.ran);
    await client.call("desk", "echo");
    await client.call("desk", "echo", payload, { to: "all", signal: AbortSignal.abort() });
  } catch (error) {
    if (error instanceof ConnectionLost) names.push(error.cause);
    else if (error instanceof AntiphonError) names.push(error.code, error.reason, error.ran, `${error.version}`);
  }
  await client.serveCommand("flush", ({ verb, sender, args, withinMs }) => `${verb} ${sender} ${args["key"]} ${withinMs}`);
  const done = await guest.command("flush", { key: "x", depth: 1, now: true }, "all", { by: "udp", withinMs: 100 });
  names.push(...done.replies.keys(), ...done.failures.keys());
  await guest.command("flush", {}, ["a"], { reply: false, signal: AbortSignal.abort() });
  console.log(await guest.commands());
  const members = await client.members();
  names.push(...members.names, members.id, ...(await client.why("a")), `${members.number}`, `${value} ${id}`);
  names.push(members.nodes[0]?.metadata["role"] ?? "", `${members.primary}`);
  await client.close();

  // @ts-expect-error a version is no number, which has 53 bits
  await map.put("tea", "3", { ifVersion: 7 });
  // @ts-expect-error a bundle is an array, and a text is none
  await (await client.join("g")).sendBundle("text");
  // @ts-expect-error a payload is a string or bytes
  await map.put("tea", 3);
  // @ts-expect-error times are numbers of milliseconds
  await client.lock("till", { withinMs: "5s" });
  // @ts-expect-error no such nodes
  await client.command("flush", {}, "most");
  // @ts-expect-error no such event
  if ((await (await client.join("g")).nextEvent())?.type === "massage") return;
}
