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

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Union

from .cell import Cell
from .events import (Answers, Changed, Command, ConnectionLost, Error, Lost, Members, Message, Node, Refused, Request,
                     Resync, Suspended, Transitional, View, Watching, Welcome)
from .lines import Duration, Payload, decode, encode, encode_all, failure, line, span
from .link import Link, welcomed

T = TypeVar("T")
Asking = Union[Request, Command]
Args = Mapping[str, Union[str, int, bool]]

BUFFER_BYTES = 1 << 20  # of a stream, before the reading stops
MOST_BYTES = 64 << 20  # of a stream whose reader waits for a reply
EVENT_BYTES = 500  # about what Python takes for an event beside its line
PART_BYTES = 60  # and for each payload of a bundle
MAX_LINE_BYTES = 64 << 20
ANSWER_BYTES = 59_744  # the agent takes no longer answer of a handler
COMMAND_ANSWER_BYTES = 1 << 20  # the most that a list may allow
REASON_CHARACTERS = 1000  # of an exception
NOT_SERVED = "its program does not serve it any more"


@dataclass
class Ask(Generic[T]):
    """An operation: its line, and what is made of its reply, as soon as that is there."""

    op: str
    fields: dict[str, Any]
    read: Callable[[dict[str, Any]], T]
    failed: Callable[[Error], object] = lambda error: None
    undo: Callable[[T], bytes] | None = None  # what gives back what nobody waits for any more
    drop: Callable[[], object] = lambda: None  # nobody will read what it brings
    urgent: bool = False  # it gives something back, and waits for no room


TELL: Ask[None] = Ask("", {}, lambda _: None)  # of a line that has no reply


class Asked(Cell, Generic[T]):
    def __init__(self, ask: Ask[T], id: int) -> None:
        super().__init__()
        self.ask, self.id = ask, id
        self.line = 0  # its number, if lines are counted; 0: there is no room for it yet
        self.done = self.abandoned = False
        self.result: T | None = None
        self.error: Error | None = None

    def take(self) -> T:
        if self.error:
            raise self.error
        return self.result  # type: ignore[return-value]


class Bundle:
    """Messages that came in one line. Each is made when it is taken."""

    def __init__(self, of: dict[str, Any]) -> None:
        self.of, self.taken = of, 0
        self.size = PART_BYTES * len(of["payloads"])

    def take(self) -> Message:
        part, of = self.taken, self.of
        self.taken += 1
        return Message(of["group"], of["view"], of["sender"], of["seq"], decode(of["payloads"][part]),
                       of.get("safe", False), part)

    def is_over(self) -> bool:
        return self.taken == len(self.of["payloads"])


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
        size += EVENT_BYTES + (event.size if isinstance(event, Bundle) else 0)
        self.events.append((size, event))
        self.size += size
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
        size, event = self.events[0]
        if isinstance(event, Bundle):
            bundle, event = event, event.take()
            if not bundle.is_over():
                return event
        self.events.popleft()
        self.size -= size
        self.core.gate.changed()
        return event

    def end(self, error: Error | None = None, discard: bool = False) -> None:
        if not self.over:
            self.over, self.error = True, error
        if discard:
            self.discard()
        self.changed()
        self.core.gate.changed()

    def discard(self) -> None:
        self.events.clear()
        self.size = 0


class Core:
    """What one client knows. `make_lost` makes what the loss of a lock is told by: see `LostEvent`.

    With a `link` it takes the lines itself, and `out` gives the shell nothing to write.
    """

    def __init__(self, make_lost: Callable[[], Any], buffer_bytes: int = BUFFER_BYTES,
                 link: Link | None = None) -> None:
        self.make_lost, self.buffer_bytes, self.link = make_lost, buffer_bytes, link
        self.times = 0  # that it came back as a new client
        self.closing = False
        self.outgoing: list[bytes] = []  # lines of its own; they go with the next send, or when a wait ends
        self.gate = Cell()  # wakes whoever reads the socket
        self.waiting: dict[Hashable, int] = {}  # who waits for replies, or to send
        self.full: Stream | None = None
        self.cause: str | None = None  # why the connection is over
        self.groups: dict[str, Stream] = {}
        self.watches: dict[int | None, Stream] = {}
        self.served: dict[tuple[str | None, str], Stream] = {}  # without a group: of commands
        self.held: dict[int | None, Any] = {}  # what is told of the loss, by the id that it was asked for with
        self._last_id = 0
        self._asked: dict[int | None, Asked[Any]] = {}
        self._whys: list[Asked[Any]] = []
        self._no_room: OrderedDict[Asked[Any], bytes] = OrderedDict()  # what waits until the link has room
        self._hello: dict[str, Any] = {}
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
        event = json.loads(text)
        if self.link and event["event"] != "took":
            self.link.came(end + 1)
        self.take_in(event, len(text))
        return True

    def held_up(self) -> bool:
        """Whether a stream is full, and its reader comes to read it without a further line."""
        full = self.full
        if self.cause is not None:  # what is left is read to the end, so the reader ends
            return False
        if full is None or full.over or full.size <= self.buffer_bytes:  # what is over does not grow
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
        self._lose_all(self.cause)
        for stream in self._streams():
            stream.end(ConnectionLost(self.cause))
        self.gate.changed()
        if self.link:
            self.link.changed()

    def _streams(self) -> list[Stream]:
        return [*self.groups.values(), *self.watches.values(), *self.served.values()]

    def _lose_all(self, cause: str) -> None:
        """What was asked for and what was held."""
        asked, self._asked, whys, self._whys = self._asked, {}, self._whys, []
        self._no_room.clear()
        for one in [*asked.values(), *whys]:
            surely_not = self.link is not None and not 0 < one.line <= self.link.given
            self._finish(one, error=ConnectionLost(cause, "no" if surely_not else "maybe"))
        held, self.held = self.held, {}
        for lost in held.values():
            lost.tell(cause)

    # Coming back.

    def may_come_back(self, broke: bool) -> bool:
        """The connection ended. Not if the agent ended it when it was told that this client leaves."""
        link = self.link
        if link is None or link.key is None or self.cause is not None:
            return False
        link.up, ended_well = False, link.up and not broke and not link.unsent
        return not (self.closing and ended_well)

    def hello_again(self) -> bytes:
        assert self.link
        return line("hello", {**self._hello, "resume": self.link.key, "lines": self.link.taken, "id": 0})

    def come_back(self, text: bytes, cause: str) -> Welcome:
        """The reply to `hello_again`: it goes on, as the same client or as a new one."""
        assert self.link
        welcome = welcomed(text)
        self.check()
        if "resumed" in welcome:
            self.link.resume(welcome["resumed"])
        self._bytes.clear()
        self._searched = 0
        self.link.up = True
        if "resumed" not in welcome:
            self._begin_anew(f"{self._last_words or cause}; the agent did not know this client any more "
                             "when it came back, which is a new one now")
        self._last_words = None
        self.link.changed()
        self._use_room()
        return self._welcome(welcome)

    def _begin_anew(self, cause: str) -> None:
        assert self.link
        self.times += 1
        self._lose_all(cause)
        for watch in self.watches.values():
            watch.end(Error("lost", cause))
        self.watches.clear()
        self.link.begin(1)  # this hello, and its reply
        if self.closing:
            self.out(line("leave", {}))
            return
        for group, stream in [*self.groups.items()]:
            if stream.over:  # it was leaving
                del self.groups[group]
                stream.end()
            else:
                # First: if the event is too much for a group that is not read, it is left behind its join.
                self.ask(self._join_again(group))
                self._tell(group, Resync(group, cause), 0)
        for served, stream in [*self.served.items()]:
            stream.discard()
            if stream.over:
                del self.served[served]
            else:
                self.ask(self._serve(*served, again=True))

    def _join_again(self, group: str) -> Ask[None]:
        def failed(error: Error) -> None:
            if not isinstance(error, ConnectionLost):
                self._on_lost({"what": "group", "name": group, "cause": error.reason}, 0)
        return Ask("join", {"group": group, "bundles": True}, lambda _: None, failed)

    def _welcome(self, of: dict[str, Any]) -> Welcome:
        if self.link:
            self.link.key = of.get("resume", self.link.key)
        return Welcome(of["client"], of["node"], of["cluster"], of["build"])

    # What the program asks for.

    def begin_close(self) -> bool:
        """Whether there is a connection to close. What is unread is dropped, so the end can be read."""
        self.closing = True
        for stream in self._streams():
            stream.end(discard=True)
        return self.cause is None

    def check(self) -> None:
        if self.cause is not None:
            raise ConnectionLost(self.cause, "no")

    def out(self, line: bytes) -> bytes:
        """What the shell is to write of it."""
        if self.link is None or not line:
            return line
        self.link.put(line)
        return b""

    def _later(self, line: bytes) -> None:
        if line := self.out(line):
            self.outgoing.append(line)

    def ask(self, ask: Ask[T]) -> tuple[Asked[T], bytes]:
        self.check()
        self._last_id += 1
        asked = Asked(ask, self._last_id)
        has_id = ask.op != "why"
        try:
            text = line(ask.op, {**ask.fields, "id": asked.id} if has_id else ask.fields)
        except Exception as error:  # what was prepared for it goes
            ask.failed(Error("refused", str(error)))
            raise
        if has_id:
            self._asked[asked.id] = asked
        else:
            self._whys.append(asked)
        return asked, self._line_up(asked, text)

    def tell(self, text: bytes) -> tuple[Asked[None], bytes]:
        """A line that has no reply: it is done when there is room for it."""
        self.check()
        self._last_id += 1
        asked = Asked(TELL, self._last_id)
        if self.link and text:
            self._asked[asked.id] = asked
        else:
            asked.done = True
        return asked, self._line_up(asked, text)

    def _line_up(self, asked: Asked[Any], text: bytes) -> bytes:
        """What the shell is to write of it. With a link there is nothing: that gets it when it has room.

        The agent counts on this bound. It reads a client's `took` behind the client's other lines, and it may
        stop reading beyond `KEEP_BYTES` that it has not confirmed.
        """
        if self.link is None or not text:
            return text
        if asked.ask.urgent:
            asked.line = self.link.put(text)
        else:
            self._no_room[asked] = text
            self._use_room()
        return b""

    def _use_room(self) -> None:
        """Hands the link what waits for room, in its order."""
        while self.link and self._no_room and self.link.has_room() and not self.closing:
            asked, text = self._no_room.popitem(last=False)
            asked.line = self.link.put(text)
            if asked.ask is TELL:
                self._finish(self._asked.pop(asked.id))

    def abandon(self, asked: Asked[Any]) -> None:
        """Nobody waits for it any more: what was granted all the same is given back."""
        asked.ask.drop()
        if asked.done:
            if asked.error is None and asked.ask.undo:
                self._later(asked.ask.undo(asked.result))
            return
        if self._no_room.pop(asked, None):  # the agent knows nothing of it
            self._asked.pop(asked.id, None)
            self._whys = [one for one in self._whys if one is not asked]
            return self._finish(asked, error=Error("refused", "nobody waits for it any more"))
        asked.abandoned = True
        if asked.ask.undo:
            self._later(line("cancel", {"of": asked.id}))

    def begin_wait(self, who: Hashable) -> None:
        self.waiting[who] = self.waiting.get(who, 0) + 1
        self.gate.changed()

    def end_wait(self, who: Hashable) -> None:
        self.waiting[who] -= 1
        if not self.waiting[who]:
            del self.waiting[who]

    # Operations.

    def hello(self, name: str | None, token: str | None) -> Ask[Welcome]:
        grace = span(self.link.grace) if self.link else None
        self._hello = {"name": name, "token": token, "grace": grace}
        return Ask("hello", self._hello, lambda reply: self._welcome(reply["welcome"]))

    def join(self, group: str, who: Hashable) -> Ask[Stream]:
        self.check()
        if group in self.groups:
            state = "is still leaving" if self.groups[group].over else "has already joined"
            raise Error("refused", f"this client {state} {group}")

        def overrun(_: Any) -> Lost:
            cause = f"slow: its program waited for a reply while {MOST_BYTES >> 20} MiB were unread"
            self._later(line("leave", {"group": group}))
            stream.over = True
            return Lost(group, cause)

        self.groups[group] = stream = Stream(self, who, overrun)
        return Ask("join", {"group": group, "bundles": True}, lambda _: stream,
                   lambda _: self.groups.pop(group, None), lambda _: line("leave", {"group": group}),
                   lambda: stream.end(discard=True))

    def leave(self, group: str) -> Ask[None]:
        stream = self.groups.get(group)
        if stream is None:
            raise Error("not_held", f"this client is not in {group} any more")
        stream.end(discard=True)
        return Ask("leave", {"group": group}, lambda _: None, urgent=True)

    def is_out(self, group: str, stream: Stream) -> bool:
        return self.cause is not None or self.groups.get(group) is not stream

    def send(self, group: str, payload: Payload, safe: bool) -> Ask[None]:
        return self._say("send", group, {"payload": encode(payload)}, safe)

    def send_bundle(self, group: str, payloads: Sequence[Payload], safe: bool) -> Ask[None]:
        if not payloads:
            raise Error("refused", "a bundle has one payload at least")
        return self._say("send_bundle", group, {"payloads": encode_all(payloads)}, safe)

    def _say(self, op: str, group: str, said: dict[str, Any], safe: bool) -> Ask[None]:
        self.check()
        if group not in self.groups or self.groups[group].over:
            raise Error("not_held", f"this client is not in {group} any more: join it again")
        return Ask(op, {"group": group, **said, "safe": safe or None}, lambda _: None)

    def lock(self, name: str, within: Duration | None) -> Ask[tuple[int, int, Any]]:
        limit = None if within is None else span(within)
        return self._hold("lock", "unlock", name, {"name": name, "within": limit})

    def lead(self, job: str) -> Ask[tuple[int, int, Any]]:
        return self._hold("lead", "resign", job, {"name": job})

    def _hold(self, op: str, undo: str, name: str, fields: dict[str, Any]) -> Ask[tuple[int, int, Any]]:
        def read(reply: dict[str, Any]) -> tuple[int, int, Any]:
            lost = self.held[reply["id"]] = self.make_lost()
            return reply["id"], reply["token"], lost

        def give_back(got: tuple[int, int, Any]) -> bytes:
            self.held.pop(got[0], None)
            return line(undo, {"name": name, "token": got[1]})
        return Ask(op, fields, read, undo=give_back)

    def holds(self, id: int) -> bool:
        return id in self.held

    def give_back(self, op: str, id: int, name: str, token: int, to: str | None) -> Ask[None]:
        def gone(_: Any) -> None:
            self.held.pop(id, None)

        def failed(error: Error) -> None:
            # Without `to` the agent holds it no more, whatever its reply is. If a job cannot be handed over, the
            # agent leads on.
            if to is None and not isinstance(error, ConnectionLost):
                gone(error)
        return Ask(op, {"name": name, "token": token, "to": to}, gone, failed, urgent=True)

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

    def serve(self, group: str | None, verb: str) -> Ask[Stream]:
        """Requests of a group; or without one, commands."""
        self.check()
        before = self.served.get((group, verb))
        if before and not before.over:
            raise Error("refused", f"this client serves {verb} already")

        def overrun(request: Asking) -> None:
            self._later(line("answer", failed(request, "too many requests wait")))
        self.served[group, verb] = Stream(self, None, overrun)
        return self._serve(group, verb)

    def _serve(self, group: str | None, verb: str, again: bool = False) -> Ask[Stream]:
        stream = self.served[group, verb]

        def failed(error: Error) -> None:
            if not (again and isinstance(error, ConnectionLost)):
                if self.served.get((group, verb)) is stream:
                    del self.served[group, verb]
                stream.end(error)
        op = "serve" if group is not None else "serve_command"
        return Ask(op, {"group": group, "verb": verb}, lambda _: stream, failed, drop=lambda: stream.end(discard=True))

    def stop_serving(self, stream: Stream, unanswered: Asking | None) -> None:
        """Its handler takes nothing more: those that wait are told so here, and those that come by `_hand`."""
        asked = [unanswered, *(event for _, event in stream.events)]
        stream.end(discard=True)
        for asking in asked:
            if asking and asking.times == self.times and self.cause is None and not self.closing:
                self._later(line("answer", failed(asking, NOT_SERVED)))

    def answer(self, asking: Asking, said: dict[str, Any]) -> tuple[Asked[None], bytes]:
        """Not to a new agent what another one asked. Whoever asked is told why if the agent does not take it."""
        if asking.times != self.times:
            return self.tell(b"")
        if "error" in said:
            return self.tell(line("answer", said))

        def refused(error: Error) -> None:
            if error.code == "refused" and not self.closing:
                self._later(line("answer", failed(asking, error.reason)))
        self._last_id += 1
        asked = Asked(Ask("answer", said, lambda _: None, refused), self._last_id)
        told = self.tell(line("answer", {**said, "id": asked.id}))
        self._asked[asked.id] = asked
        return told

    # Events, by their names.

    def _finish(self, asked: Asked[Any], result: Any = None, error: Error | None = None) -> None:
        asked.done, asked.result, asked.error = True, result, error
        if error:
            asked.ask.failed(error)
        elif asked.abandoned and asked.ask.undo:
            self._later(asked.ask.undo(result))
        asked.changed()

    def _on_reply(self, event: dict[str, Any], size: int) -> None:
        asked = self._asked.get(event.get("id"))
        if asked is None:
            return
        result, error = None, None
        if "error" in event:
            failures = {name: failure(of) for name, of in event.get("failures", {}).items()}
            error = failure(event["error"], version=event.get("version"), failures=failures)
        else:
            result = asked.ask.read(event)
        del self._asked[asked.id]  # only now: what cannot be read ends with the connection
        self._finish(asked, result, error)

    def _on_error(self, event: dict[str, Any], size: int) -> None:
        request, error = event.get("request"), Error("refused", event["reason"])
        op, fields = next(iter(request.items()), ("", {})) if isinstance(request, dict) else ("", {})
        if op == "why" and self._whys:
            self._finish_why(self._why_of(fields), error=error)
        elif isinstance(fields, dict) and (asked := self._asked.pop(fields.get("id"), None)):
            self._finish(asked, error=error)
        elif isinstance(request, str):  # no JSON to the agent: one may wait for it, and it has no id
            self._last_words = f"the agent did not understand a line of this client: {event['reason']}"
            raise ValueError(self._last_words)
        elif request is None:
            self._last_words = event["reason"]

    def _on_refused(self, event: dict[str, Any], size: int) -> None:
        group = event["group"]
        if group is None:
            self._last_words = event["reason"]
        elif "request" in event:
            ((_, said),) = event["request"].items()
            for payload in said.get("payloads") or [said.get("payload")]:  # the agent does not echo long ones
                data = None if payload is None else decode(payload)
                self._tell(group, Refused(group, event["reason"], data), size)

    def _on_why(self, event: dict[str, Any], size: int) -> None:
        if self._whys:
            asked = self._why_of(event)
            self._finish_why(asked, asked.ask.read(event))

    def _finish_why(self, asked: Asked[Any], result: Any = None, error: Error | None = None) -> None:
        self._whys.remove(asked)
        self._finish(asked, result, error)

    def _why_of(self, of: Any) -> Asked[Any]:
        """Threads may write their questions in another order than they were asked in."""
        node = of.get("node") if isinstance(of, dict) else None
        return next((asked for asked in self._whys if asked.ask.fields["node"] == node), self._whys[0])

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
        self._hand(event["group"], size, Request(event["group"], event["verb"], event["from"],
                                                 decode(event["payload"]), event["within_ms"] / 1000,
                                                 event["request"], self.times))

    def _on_command(self, event: dict[str, Any], size: int) -> None:
        self._hand(None, size, Command(event["verb"], event["from"], event["args"], event["within_ms"] / 1000,
                                       event["request"], self.times))

    def _hand(self, group: str | None, size: int, asking: Asking) -> None:
        stream = self.served.get((group, asking.verb))
        if stream and not stream.over:
            self._put(stream, asking, size)
        elif stream and not self.closing:
            self._later(line("answer", failed(asking, NOT_SERVED)))

    def _on_took(self, event: dict[str, Any], size: int) -> None:
        if self.link:
            self.link.took(event["lines"])
            self._use_room()


def view(of: dict[str, Any]) -> View:
    names = {key: tuple(of[key]) for key in ("members", "joined", "left", "crashed", "transitional")}
    return View(of["group"], of["id"], causes=of.get("causes", {}), primary=of["primary"], **names)


def message(of: dict[str, Any]) -> Message:
    payload = decode(of["payload"])
    return Message(of["group"], of["view"], of["sender"], of["seq"], payload, of.get("safe", False), of.get("part", 0))


TOLD: dict[str, Callable[[dict[str, Any]], Any]] = {
    "view": view,
    "message": message,
    "bundle": Bundle,
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


def command(verb: str, args: Args | None, to: str | list[str], by: str | None, reply: bool,
            within: Duration | None) -> Ask[Answers]:
    if not all(isinstance(value, (str, int)) for value in (args or {}).values()):
        raise Error("refused", "an argument is a text, an integer or a boolean")
    fields = {"verb": verb, "args": args and dict(args), "to": to, "by": by, "reply": None if reply else False,
              "within": None if within is None else span(within)}
    return Ask("command", fields, answers)


def commands() -> Ask[dict[str, Any]]:
    return Ask("commands", {}, lambda reply: dict(reply["commands"]))


def answer(asking: Asking, payload: Payload | None) -> dict[str, Any]:
    data = payload or b""
    size = len(data.encode() if isinstance(data, str) else data)
    most = COMMAND_ANSWER_BYTES if isinstance(asking, Command) else ANSWER_BYTES
    if size > most:
        return failed(asking, f"the answer has {size} bytes, and may have {most}")
    return {"request": asking.number, "payload": encode(data)}


def failed(asking: Asking, reason: str) -> dict[str, Any]:
    """Of an answer, whatever is in the reason."""
    return {"request": asking.number, "error": reason[:REASON_CHARACTERS].encode("utf-8", "replace").decode()}


def raised(asking: Asking, error: Exception) -> dict[str, Any]:
    try:
        return failed(asking, str(error) or type(error).__name__)
    except Exception:  # of the exception's own
        return failed(asking, type(error).__name__)
