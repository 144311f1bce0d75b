#!/usr/bin/env python3
"""The driver of the client for threads: see ../conformance/README.md."""

import contextlib
import json
import socket
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

import antiphon  # noqa: E402
from antiphon.core import decode, encode  # noqa: E402

printing = threading.Lock()
never = threading.Event()
LONG = ("connect", "lock", "lead", "call")  # what may wait for others has a thread of its own


def say(**line):
    with printing:
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
        self.client, self.groups, self.held, self.flowing = None, {}, {}, {}

    def connect(self, address, name=None, grace=None):
        self.client = antiphon.connect(address, name, grace=grace)
        self.groups, self.held, self.flowing = {}, {}, {}
        return {"member": self.client.member}

    def cut(self):
        with contextlib.suppress(OSError):  # it is broken already
            self.client._sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.client.close()

    def members(self):
        return {"nodes": self.client.members().names}

    def why(self, node):
        return {"facts": self.client.why(node)}

    def join(self, group):
        self.flowing[group] = threading.Event()
        self.flowing[group].set()
        self.groups[group] = self.client.join(group)
        self.follow(self.groups[group], {"group": group}, self.flowing[group])

    def leave(self, group):
        self.groups.pop(group).leave()

    def send(self, group, payload, safe=False, wait=False):
        self.groups[group].send(decode(payload), safe, wait)

    def send_bundle(self, group, payloads, safe=False, wait=False):
        self.groups[group].send_bundle(map(decode, payloads), safe, wait)

    def pause(self, group):
        self.flowing[group].clear()

    def resume(self, group):
        self.flowing[group].set()

    def lock(self, name, within=None):
        return self.hold("lock", name, self.client.lock(name, within))

    def unlock(self, name):
        self.held.pop(name).unlock()

    def lead(self, name):
        return self.hold("lead", name, self.client.lead(name))

    def resign(self, name, to=None):
        self.held[name].resign(to)
        del self.held[name]

    def get(self, map, key, latest=False):
        return self.item(self.client.map(map).get(key, latest))

    def put(self, map, key, value, if_version=None, ttl=None):
        return {"version": self.client.map(map).put(key, decode(value), if_version, ttl)}

    def remove(self, map, key, if_version=None):
        return self.item(self.client.map(map).remove(key, if_version))

    def watch(self, map, key=None, prefix=None):
        self.follow(self.client.map(map).watch(key, prefix=prefix), {"map": map})

    def add(self, counter, by):
        return {"value": self.client.counter(counter).add(by)}

    def take_ids(self, count):
        ids = self.client.take_ids(count)
        return {"first": ids.start, "count": len(ids)}

    def serve(self, group, verb, how):
        def handler(request):
            say(event="request", group=group, verb=verb)
            if how == "never":
                never.wait()
            if how == "error":
                raise ValueError("no")
            return request.payload if how == "echo" else self.client.member
        self.client.serve(group, verb, handler)

    def call(self, group, verb, to="any", payload="", within=None):
        answers = self.client.call(group, verb, to, decode(payload), within)
        return {"replies": answers.replies, "failures": answers.failures}

    @staticmethod
    def item(item):
        return None if item is None else {"value": item[0], "version": item[1]}

    def hold(self, what, name, guard):
        self.held[name] = guard

        def tell():
            guard.lost.wait()
            say(event="lost", what=what, name=name, cause=guard.lost.cause)
        threading.Thread(target=tell, daemon=True).start()
        return {"token": guard.token}

    def follow(self, events, of, flowing=None):
        def tell():
            try:
                for event in events:
                    say(**plain({"event": type(event).__name__.lower(), **of, **vars(event)}))
                    if flowing:
                        flowing.wait()
            except antiphon.ConnectionLost as lost:
                say(event="connection_lost", **of, cause=lost.cause)
            except antiphon.Error as error:
                say(event="lost", what="watch", **of, cause=error.reason)
        threading.Thread(target=tell, daemon=True).start()

    def obey(self, command):
        id, do = command.pop("id"), command.pop("do")
        try:
            say(id=id, ok=plain(getattr(self, do)(**command)))
        except antiphon.Error as error:
            say(id=id, error=plain(error))
        except Exception as error:
            say(id=id, error={"code": "driver", "reason": f"{type(error).__name__}: {error}", "ran": "maybe"})


driver = Driver()
for text in sys.stdin:
    command = json.loads(text)
    if command["do"] in LONG or command.get("wait"):
        threading.Thread(target=driver.obey, args=(command,), daemon=True).start()
    else:
        driver.obey(command)
