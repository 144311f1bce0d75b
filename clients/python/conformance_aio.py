#!/usr/bin/env python3
"""The driver of the client for asyncio: see ../conformance/README.md."""

import asyncio
import contextlib
import json
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

import antiphon  # noqa: E402
from antiphon.core import decode, encode  # noqa: E402

LONG = ("connect", "lock", "lead", "call")  # what may wait for others has a task of its own


def say(**line):
    print(json.dumps(line, ensure_ascii=False), flush=True)


def plain(of):
    """An event, a reply or an error as JSON: fields as they are, bytes as payloads."""
    if isinstance(of, bytes):
        return encode(of)
    if isinstance(of, antiphon.Error):
        fields = {"code": of.code, "reason": of.reason, "ran": of.ran, "version": of.version, "payload": of.payload,
                  "failures": of.failures}
        return plain({key: value for key, value in fields.items() if value not in (None, {})})
    if isinstance(of, dict):
        return {key: plain(value) for key, value in of.items()}
    return [plain(one) for one in of] if isinstance(of, (list, tuple)) else of


class Driver:
    def __init__(self):
        self.client, self.groups, self.held, self.flowing, self.tasks = None, {}, {}, {}, set()

    async def connect(self, address, name=None, grace=None):
        self.client = await antiphon.aio.connect(address, name, grace=grace)
        self.groups, self.held, self.flowing = {}, {}, {}
        return {"member": self.client.member}

    async def cut(self):
        with contextlib.suppress(OSError):  # it is broken already
            self.client._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def close(self):
        await self.client.close()

    async def members(self):
        return {"nodes": (await self.client.members()).names}

    async def why(self, node):
        return {"facts": await self.client.why(node)}

    async def join(self, group):
        self.flowing[group] = asyncio.Event()
        self.flowing[group].set()
        self.groups[group] = await self.client.join(group)
        self.begin(self.follow(self.groups[group], {"group": group}, self.flowing[group]))

    async def leave(self, group):
        await self.groups.pop(group).leave()

    async def send(self, group, payload, safe=False, wait=False):
        await self.groups[group].send(decode(payload), safe, wait)

    async def send_bundle(self, group, payloads, safe=False, wait=False):
        await self.groups[group].send_bundle(map(decode, payloads), safe, wait)

    async def pause(self, group):
        self.flowing[group].clear()

    async def resume(self, group):
        self.flowing[group].set()

    async def lock(self, name, within=None):
        return self.hold("lock", name, await self.client.lock(name, within))

    async def unlock(self, name):
        await self.held.pop(name).unlock()

    async def lead(self, name):
        return self.hold("lead", name, await self.client.lead(name))

    async def resign(self, name, to=None):
        await self.held[name].resign(to)
        del self.held[name]

    async def get(self, map, key, latest=False):
        return self.item(await self.client.map(map).get(key, latest))

    async def put(self, map, key, value, if_version=None, ttl=None):
        return {"version": await self.client.map(map).put(key, decode(value), if_version, ttl)}

    async def remove(self, map, key, if_version=None):
        return self.item(await self.client.map(map).remove(key, if_version))

    async def watch(self, map, key=None, prefix=None):
        self.begin(self.follow(await self.client.map(map).watch(key, prefix=prefix), {"map": map}))

    async def add(self, counter, by):
        return {"value": await self.client.counter(counter).add(by)}

    async def take_ids(self, count):
        ids = await self.client.take_ids(count)
        return {"first": ids.start, "count": len(ids)}

    async def serve(self, group, verb, how):
        async def handler(request):
            say(event="request", group=group, verb=verb)
            if how == "never":
                await asyncio.Event().wait()
            if how == "error":
                raise ValueError("no")
            return request.payload if how == "echo" else self.client.member
        await self.client.serve(group, verb, handler)

    async def call(self, group, verb, to="any", payload="", within=None):
        answers = await self.client.call(group, verb, to, decode(payload), within)
        return {"replies": answers.replies, "failures": answers.failures}

    @staticmethod
    def item(item):
        return None if item is None else {"value": item[0], "version": item[1]}

    def hold(self, what, name, guard):
        self.held[name] = guard

        async def tell():
            await guard.lost.wait()
            say(event="lost", what=what, name=name, cause=guard.lost.cause)
        self.begin(tell())
        return {"token": guard.token}

    async def follow(self, events, of, flowing=None):
        try:
            async for event in events:
                say(**plain({"event": type(event).__name__.lower(), **of, **vars(event)}))
                if flowing:
                    await flowing.wait()
        except antiphon.ConnectionLost as lost:
            say(event="connection_lost", **of, cause=lost.cause)
        except antiphon.Error as error:
            say(event="lost", what="watch", **of, cause=error.reason)

    def begin(self, work):
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def obey(self, command):
        id, do = command.pop("id"), command.pop("do")
        try:
            say(id=id, ok=plain(await getattr(self, do)(**command)))
        except antiphon.Error as error:
            say(id=id, error=plain(error))
        except Exception as error:
            say(id=id, error={"code": "driver", "reason": f"{type(error).__name__}: {error}", "ran": "maybe"})

    async def run(self):
        while text := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(text)
            if command["do"] in LONG or command.get("wait"):
                self.begin(self.obey(command))
            else:
                await self.obey(command)


asyncio.run(Driver().run())
