"""The protocol without a socket: lines in, commands out, and who waits for what.

    bytes ─► push ─► step ─┬─► Asked     the reply to an operation, by its id
                           ├─► Stream    what a group, a watch or a served verb is told
                           └─► lost      a lock or a leadership is over

A shell calls everything here under one lock (or in one thread). Whoever waits puts a function into `wakers` of
a `Cell` and looks again when it is called.

A `Stream` is bounded. When one has more than its bound, `step` takes no further line and the shell stops reading:
TCP and the agent then make the senders wait. One case is different: whoever takes from the full stream waits for
a reply itself, which is behind the events. Then the stream may grow to `MOST_BYTES`, and beyond that it ends.
"""

from __future__ import annotations

import base64
import json
import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from .events import (Answers, Changed, ConnectionLost, Error, Lost, Members, Message, Node, Refused, Request,
                     Resync, Suspended, Transitional, View, Watching, Welcome)

T = TypeVar("T")
Duration = float | timedelta
Payload = bytes | str

BUFFER_BYTES = 1 << 20  # of a stream, before the reading stops
MOST_BYTES = 64 << 20  # of a stream whose reader waits for a reply
EVENT_BYTES = 500  # about what Python takes for an event beside its line
MAX_LINE_BYTES = 64 << 20
AGENT_LINE_BYTES = 4 << 20
ANSWER_BYTES = 59_744  # the agent takes no longer answer of a handler
TEXT_BYTES = 600_000  # a text of control characters has six times as many bytes in JSON, and a line 4 MiB


def encode(payload: Payload) -> str | dict[str, str]:
    data = payload.encode() if isinstance(payload, str) else bytes(payload)
    try:
        if len(data) <= TEXT_BYTES:
            return data.decode()
    except UnicodeDecodeError:
        pass
    return {"base64": base64.b64encode(data).decode()}


def decode(payload: Any) -> bytes:
    return payload.encode() if isinstance(payload, str) else base64.b64decode(payload["base64"])


def span(duration: Duration) -> str:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return f"{math.ceil(seconds * 1000)}ms"


def line(op: str, fields: dict[str, Any]) -> bytes:
    given = {key: value for key, value in fields.items() if value is not None}
    text = json.dumps({op: given}, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > AGENT_LINE_BYTES:  # the agent would end the connection
        raise Error("refused", f"{op} has {len(text)} bytes, and the agent takes {AGENT_LINE_BYTES}: make it shorter")
    return text + b"\n"


def failure(of: dict[str, Any], **more: Any) -> Error:
    payload = decode(of["payload"]) if "payload" in of else None
    return Error(of["code"], of["reason"], of["ran"], payload=payload, **more)


class Cell:
    """Something that is waited for."""

    def __init__(self) -> None:
        self.wakers: list[Callable[[], object]] = []

    def changed(self) -> None:
        for waker in self.wakers.copy():
            waker()


@dataclass
class Ask(Generic[T]):
    """An operation: its line, and what is made of its reply, as soon as that is there."""

    op: str
    fields: dict[str, Any]
    read: Callable[[dict[str, Any]], T]
    failed: Callable[[], object] = lambda: None
    undo: Callable[[T], bytes] | None = None  # what gives back what nobody waits for any more


class Asked(Cell, Generic[T]):
    def __init__(self, ask: Ask[T], id: int) -> None:
        super().__init__()
        self.ask, self.id = ask, id
        self.done = self.abandoned = False
        self.result: T | None = None
        self.error: Error | None = None

    def take(self) -> T:
        if self.error:
            raise self.error
        return self.result  # type: ignore[return-value]


class Stream(Cell):
    """Events in their order, up to a bound, and what comes behind the last."""

    def __init__(self, core: Core, who: Hashable, overrun: Callable[[Any], Any] = lambda event: None) -> None:
        super().__init__()
        self.core, self.overrun = core, overrun
        self.reader = who  # takes from it, as far as is known
        self.events: deque[tuple[int, Any]] = deque()
        self.size = 0
        self.over = False  # nothing more is put
        self.error: Error | None = None  # what it ends with; nothing: in order

    def put(self, event: Any, size: int) -> None:
        if self.over:
            return
        if self.size > MOST_BYTES:
            event = self.overrun(event)
            if event is None:
                return
        self.events.append((size + EVENT_BYTES, event))
        self.size += size + EVENT_BYTES
        self.changed()

    def ready(self) -> bool:
        return bool(self.events) or self.over

    def take(self, who: Hashable) -> Any:
        """The next event, once it is `ready`; `StopIteration`, or its error, behind the last."""
        self.reader = who
        if not self.events:
            if self.error:
                raise self.error
            raise StopIteration
        size, event = self.events.popleft()
        self.size -= size
        self.core.gate.changed()
        return event

    def end(self, error: Error | None = None, discard: bool = False) -> None:
        if not self.over:
            self.over, self.error = True, error
        if discard:
            self.events.clear()
            self.size = 0
        self.changed()
        self.core.gate.changed()


class Core:
    """What one connection knows. `make_lost` makes what the loss of a lock is told by: see `LostEvent`."""

    def __init__(self, make_lost: Callable[[], Any], buffer_bytes: int = BUFFER_BYTES) -> None:
        self.make_lost, self.buffer_bytes = make_lost, buffer_bytes
        self.outgoing: list[bytes] = []  # lines of its own; they go with the next send, or when a wait ends
        self.gate = Cell()  # wakes whoever reads the socket
        self.waiting: dict[Hashable, int] = {}  # who waits for replies, or to send
        self.full: Stream | None = None
        self.cause: str | None = None  # why the connection is over
        self.groups: dict[str, Stream] = {}
        self.watches: dict[int | None, Stream] = {}
        self.served: dict[tuple[str, str], Stream] = {}
        self.held: dict[int | None, Any] = {}  # what is told of the loss, by the id that it was asked for with
        self._last_id = 0
        self._asked: dict[int | None, Asked[Any]] = {}
        self._whys: deque[Asked[Any]] = deque()
        self._last_words: str | None = None
        self._bytes = bytearray()
        self._searched = 0

    # What the socket brings.

    def push(self, data: bytes) -> None:
        self._bytes += data

    def step(self) -> bool:
        """Takes one line in; false if there is none, or a stream is too full."""
        if self.held_up():
            return False
        end = self._bytes.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._bytes)
            if len(self._bytes) > MAX_LINE_BYTES:
                raise ValueError(f"the agent sent a line of more than {MAX_LINE_BYTES} bytes")
            return False
        text = bytes(self._bytes[:end])
        del self._bytes[:end + 1]
        self._searched = 0
        self.take_in(json.loads(text), len(text))
        return True

    def held_up(self) -> bool:
        """Whether a stream is full, and its reader comes to read it without a further line."""
        full = self.full
        if full is None or full.size <= self.buffer_bytes:
            self.full = None
            return False
        return full.reader not in self.waiting

    def take_in(self, event: dict[str, Any], size: int) -> None:
        kind = event["event"]
        if kind in TOLD:
            self._tell(event["group"], TOLD[kind](event), size)
        elif handler := getattr(self, "_on_" + kind, None):  # else of a newer agent
            handler(event, size)

    def lose(self, cause: str) -> None:
        """The connection is over: whoever waits is told so."""
        if self.cause is None:
            self.cause = self._last_words or cause
        for asked in [*self._asked.values(), *self._whys]:
            self._finish(asked, error=ConnectionLost(self.cause))
        self._asked.clear()
        self._whys.clear()
        for stream in [*self.groups.values(), *self.watches.values(), *self.served.values()]:
            stream.end(ConnectionLost(self.cause))
        for lost in self.held.values():
            lost.tell(self.cause)
        self.held.clear()
        self.gate.changed()

    # What the program asks for.

    def begin_close(self) -> bool:
        """Whether there is a connection to close. What is unread is dropped, so the end can be read."""
        for group in self.groups.values():
            group.end(discard=True)
        return self.cause is None

    def check(self) -> None:
        if self.cause is not None:
            raise ConnectionLost(self.cause, "no")

    def ask(self, ask: Ask[T]) -> tuple[Asked[T], bytes]:
        self.check()
        self._last_id += 1
        asked = Asked(ask, self._last_id)
        if ask.op == "why":  # has no id: answered in their order
            text = line(ask.op, ask.fields)
            self._whys.append(asked)
        else:
            text = line(ask.op, {**ask.fields, "id": asked.id})
            self._asked[asked.id] = asked
        return asked, text

    def abandon(self, asked: Asked[Any]) -> None:
        """Nobody waits for it any more: what was granted all the same is given back."""
        if asked.done:
            if asked.error is None and asked.ask.undo:
                self.outgoing.append(asked.ask.undo(asked.result))
            return
        asked.abandoned = True
        if asked.ask.undo:
            self.outgoing.append(line("cancel", {"of": asked.id}))

    def begin_wait(self, who: Hashable) -> None:
        self.waiting[who] = self.waiting.get(who, 0) + 1
        self.gate.changed()

    def end_wait(self, who: Hashable) -> None:
        self.waiting[who] -= 1
        if not self.waiting[who]:
            del self.waiting[who]

    # Operations.

    def join(self, group: str, who: Hashable) -> Ask[Stream]:
        self.check()
        if group in self.groups:
            raise Error("refused", f"this client has joined {group} already")

        def overrun(_: Any) -> Lost:
            cause = f"slow: its program waited for a reply while {MOST_BYTES >> 20} MiB were unread"
            self.outgoing.append(line("leave", {"group": group}))
            stream.over = True
            return Lost(group, cause)

        self.groups[group] = stream = Stream(self, who, overrun)
        return Ask("join", {"group": group}, lambda _: stream, lambda: self.groups.pop(group, None),
                   lambda _: line("leave", {"group": group}))

    def leave(self, group: str) -> Ask[None]:
        stream = self.groups[group]
        stream.end(discard=True)
        return Ask("leave", {"group": group}, lambda _: None)

    def is_out(self, group: str, stream: Stream) -> bool:
        return self.cause is not None or self.groups.get(group) is not stream

    def send(self, group: str, payload: Payload, safe: bool) -> Ask[None]:
        self.check()
        if group not in self.groups or self.groups[group].over:
            raise Error("not_held", f"this client is not in {group} any more: join it again")
        return Ask("send", {"group": group, "payload": encode(payload), "safe": safe or None}, lambda _: None)

    def lock(self, name: str, within: Duration | None) -> Ask[tuple[int, int, Any]]:
        limit = None if within is None else span(within)
        return self._hold("lock", "unlock", name, {"name": name, "within": limit})

    def lead(self, job: str) -> Ask[tuple[int, int, Any]]:
        return self._hold("lead", "resign", job, {"name": job})

    def _hold(self, op: str, undo: str, name: str, fields: dict[str, Any]) -> Ask[tuple[int, int, Any]]:
        def read(reply: dict[str, Any]) -> tuple[int, int, Any]:
            lost = self.held[reply["id"]] = self.make_lost()
            return reply["id"], reply["token"], lost
        return Ask(op, fields, read, undo=lambda got: line(undo, {"name": name, "token": got[1]}))

    def holds(self, id: int) -> bool:
        return id in self.held

    def give_back(self, op: str, id: int, name: str, token: int, to: str | None) -> Ask[None]:
        return Ask(op, {"name": name, "token": token, "to": to}, lambda _: self.held.pop(id, None) and None)

    def watch(self, name: str, key: str | None, prefix: str | None, who: Hashable) -> Ask[tuple[Stream, int]]:
        def overrun(_: Any) -> None:
            stream.end(Error("lost", "too much was unread while its program waited for a reply"))
        stream = Stream(self, who, overrun)

        def begun(reply: dict[str, Any]) -> tuple[Stream, int]:
            self.watches[reply["id"]] = stream
            return stream, reply["id"]
        return Ask("watch", {"map": name, "key": key, "prefix": prefix}, begun, undo=lambda got: self.unwatch(got[1]))

    def unwatch(self, id: int) -> bytes:
        if stream := self.watches.pop(id, None):
            stream.end(discard=True)
            return line("cancel", {"of": id})
        return b""

    def serve(self, group: str, verb: str) -> Ask[Stream]:
        self.check()
        if (group, verb) in self.served:
            raise Error("refused", f"this client serves {verb} in {group} already")

        def overrun(request: Request) -> None:
            self.outgoing.append(line("answer", {"request": request.number, "error": "too many requests wait"}))
        stream = self.served[group, verb] = Stream(self, None, overrun)
        return Ask("serve", {"group": group, "verb": verb}, lambda _: stream,
                   lambda: self.served.pop((group, verb), None))

    # Events, by their names.

    def _finish(self, asked: Asked[Any], result: Any = None, error: Error | None = None) -> None:
        asked.done, asked.result, asked.error = True, result, error
        if error:
            asked.ask.failed()
        elif asked.abandoned and asked.ask.undo:
            self.outgoing.append(asked.ask.undo(result))
        asked.changed()

    def _on_reply(self, event: dict[str, Any], size: int) -> None:
        asked = self._asked.pop(event.get("id"), None)
        if asked is None:
            return
        if "error" not in event:
            return self._finish(asked, asked.ask.read(event))
        failures = {name: failure(of) for name, of in event.get("failures", {}).items()}
        self._finish(asked, error=failure(event["error"], version=event.get("version"), failures=failures))

    def _on_error(self, event: dict[str, Any], size: int) -> None:
        request, error = event.get("request"), Error("refused", event["reason"])
        op, fields = next(iter(request.items()), ("", {})) if isinstance(request, dict) else ("", {})
        if op == "why" and self._whys:
            self._finish(self._whys.popleft(), error=error)
        elif isinstance(fields, dict) and (asked := self._asked.pop(fields.get("id"), None)):
            self._finish(asked, error=error)
        elif request is None:
            self._last_words = event["reason"]

    def _on_refused(self, event: dict[str, Any], size: int) -> None:
        group = event["group"]
        if group is None:
            self._last_words = event["reason"]
        elif "request" in event:
            payload = decode(event["request"]["send"]["payload"])
            self._tell(group, Refused(group, event["reason"], payload), size)

    def _on_why(self, event: dict[str, Any], size: int) -> None:
        if self._whys:
            asked = self._whys.popleft()
            self._finish(asked, asked.ask.read(event))

    def _on_lost(self, event: dict[str, Any], size: int) -> None:
        if event["what"] == "group":
            self._tell(event["name"], Lost(event["name"], event["cause"]), size)
            if stream := self.groups.pop(event["name"], None):
                stream.end()
        elif event["what"] == "watch":
            if stream := self.watches.pop(event.get("id"), None):
                stream.end(Error("lost", event["cause"]))
        elif lost := self.held.pop(event.get("id"), None):
            lost.tell(event["cause"])

    def _tell(self, group: str, event: Any, size: int) -> None:
        if stream := self.groups.get(group):
            self._put(stream, event, size)

    def _put(self, stream: Stream, event: Any, size: int) -> None:
        stream.put(event, size)
        if stream.size > self.buffer_bytes:
            self.full = stream

    def _on_group_left(self, event: dict[str, Any], size: int) -> None:
        if stream := self.groups.pop(event["group"], None):
            stream.end()

    def _on_watching(self, event: dict[str, Any], size: int) -> None:
        if stream := self.watches.get(event.get("id")):
            self._put(stream, Watching(event["entries"]), size)

    def _on_changed(self, event: dict[str, Any], size: int) -> None:
        if stream := self.watches.get(event.get("id")):
            value = None if event["value"] is None else decode(event["value"])
            self._put(stream, Changed(event["key"], value, event["version"], event.get("gone")), size)

    def _on_request(self, event: dict[str, Any], size: int) -> None:
        if stream := self.served.get((event["group"], event["verb"])):
            request = Request(event["group"], event["verb"], event["from"], decode(event["payload"]),
                              event["within_ms"] / 1000, event["request"])
            self._put(stream, request, size)


def view(of: dict[str, Any]) -> View:
    names = {key: tuple(of[key]) for key in ("members", "joined", "left", "crashed", "transitional")}
    return View(of["group"], of["id"], causes=of.get("causes", {}), primary=of["primary"], **names)


def message(of: dict[str, Any]) -> Message:
    payload = decode(of["payload"])
    return Message(of["group"], of["view"], of["sender"], of["seq"], payload, of.get("safe", False))


TOLD: dict[str, Callable[[dict[str, Any]], Any]] = {
    "view": view,
    "message": message,
    "transitional": lambda of: Transitional(of["group"], tuple(of["members"])),
    "suspended": lambda of: Suspended(of["group"]),
    "resync": lambda of: Resync(of["group"], of["cause"]),
}


def item(reply: dict[str, Any]) -> tuple[bytes, int] | None:
    return None if reply["value"] is None else (decode(reply["value"]), reply["version"])


def answers(reply: dict[str, Any]) -> Answers:
    return Answers({name: decode(of) for name, of in reply.get("replies", {}).items()},
                   {name: failure(of) for name, of in reply.get("failures", {}).items()})


def nodes(reply: dict[str, Any]) -> Members:
    view = reply["view"]
    of = (Node(node["name"], node["incarnation"], node["addr"], node.get("metadata", {})) for node in view["members"])
    return Members(view["id"], view["number"], view["primary"], tuple(of))


def hello(name: str | None) -> Ask[Welcome]:
    return Ask("hello", {"name": name}, lambda reply: Welcome(**reply["welcome"]))


def members() -> Ask[Members]:
    return Ask("members", {}, nodes)


def why(node: str) -> Ask[tuple[str, ...]]:
    return Ask("why", {"node": node}, lambda event: tuple(event["facts"]))


def get(name: str, key: str, latest: bool) -> Ask[tuple[bytes, int] | None]:
    return Ask("get", {"map": name, "key": key, "latest": latest or None}, item)


def put(name: str, key: str, value: Payload, if_version: int | None, ttl: Duration | None) -> Ask[int]:
    fields = {"map": name, "key": key, "value": encode(value), "if_version": if_version,
              "ttl": None if ttl is None else span(ttl)}
    return Ask("put", fields, lambda reply: int(reply["version"]))


def remove(name: str, key: str, if_version: int | None) -> Ask[tuple[bytes, int] | None]:
    return Ask("remove", {"map": name, "key": key, "if_version": if_version}, item)


def add(name: str, by: int) -> Ask[int]:
    return Ask("add", {"counter": name, "by": by}, lambda reply: int(reply["value"]))


def take_ids(count: int) -> Ask[range]:
    return Ask("take_ids", {"count": count}, lambda reply: range(reply["first"], reply["first"] + count))


def call(group: str, verb: str, to: str | list[str], payload: Payload, within: Duration | None) -> Ask[Answers]:
    fields = {"group": group, "verb": verb, "to": to, "payload": encode(payload),
              "within": None if within is None else span(within)}
    return Ask("call", fields, answers)


def answer(request: Request, payload: Payload | None, error: str | None = None) -> bytes:
    data = (payload or b"") if error is None else error
    size = len(data.encode() if isinstance(data, str) else data)
    if size > ANSWER_BYTES:
        error = f"the answer has {size} bytes, and may have {ANSWER_BYTES}"
    said = {"error": error} if error is not None else {"payload": encode(data)}
    return line("answer", {"request": request.number, **said})


def address(text: str) -> tuple[str, int] | str:
    """A host and a port, or the path of a Unix socket."""
    if text.startswith("unix:"):
        return text[5:]
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f'an address is "host:port" or "unix:/path", not {text!r}')
    return host.strip("[]"), int(port)
