"""The client for threads: one thread reads the connection, and those that ask wait for it."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from . import address as place
from . import core as protocol
from . import lines
from .cell import Cell
from .core import Args, Ask, Asked, Asking, Core, Stream
from .events import Answers, Command, Error, GroupEvent, Members, Request, WatchEvent, Welcome
from .lines import Duration, Payload
from .link import MOST_WELCOME_BYTES, TRY_EVERY, Link, seconds
from .tls import Tls

T = TypeVar("T")
CLOSE_WITHIN = 5.0  # seconds, for leaving in order
Handler = Callable[[Request], "Payload | None"]
CommandHandler = Callable[[Command], "Payload | None"]


class LostEvent(threading.Event):
    """Is set when a lock or a leadership is lost; `cause` says why."""

    cause: str | None = None

    def tell(self, cause: str) -> None:
        self.cause = cause
        self.set()


def connect(address: str, name: str | None = None, *, timeout: float = 10.0,
            buffer_bytes: int = protocol.BUFFER_BYTES, grace: Duration | None = None, token: str | None = None,
            tls: ssl.SSLContext | bool | None = None) -> Client:
    """A client of the agent at "host:port" or "unix:/path", called `name` in groups.

    `grace`: for how many seconds it tries to come back when its connection breaks, at most 10.
    `tls`: a context, or True for the default one.
    `timeout`: in seconds. `ConnectionLost` if there is no agent by then, or it cannot be reached.
    """
    where = place.address(address)
    link = Link(seconds(grace)) if grace else None
    opening = functools.partial(_open, where, place.tls_of(tls, where))
    try:
        sock = opening(timeout)
        sock.settimeout(None)
        client = Client(sock, buffer_bytes, link, opening)
        try:
            client._called(client._do(lambda: client._core.hello(name, token), timeout))
        except BaseException:
            client._cut()
            raise
    except OSError as error:
        raise place.not_reached(address, error, timeout) from error
    return client


def _open(where: tuple[str, int] | str, tls: ssl.SSLContext | None, timeout: float) -> socket.socket | Tls:
    if isinstance(where, str):
        deadline = time.monotonic() + timeout
        while not (found := place.try_unix(where)):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the queue of {where} was full for {timeout} s")
            time.sleep(place.TRY_UNIX_EVERY)
        found.settimeout(timeout)
        return found
    sock = socket.create_connection(where, timeout)
    try:
        place.prepare(sock)
        return Tls(sock, tls, where[0]) if tls else sock
    except BaseException:
        sock.close()
        raise


class Client:
    """One connection, or with `grace` one after the other. Its methods may be called by any thread."""

    def __init__(self, sock: socket.socket | Tls, buffer_bytes: int, link: Link | None,
                 opening: Callable[[float], socket.socket | Tls]) -> None:
        self._sock, self._opening = sock, opening
        self._lock = threading.Lock()  # of the core
        self._sending = threading.Lock()
        self._core = Core(LostEvent, buffer_bytes, link)
        self._next_try = 0.0
        self._writes_late = False  # a thread writes what the core says by itself
        self.name = self.node = self.cluster = self.build = ""
        self._reader = threading.Thread(target=self._read, name="antiphon", daemon=True)
        self._reader.start()
        if link:
            threading.Thread(target=self._write_kept, args=(link,), name="antiphon writes", daemon=True).start()

    @property
    def member(self) -> str:
        """What this client is called in groups."""
        return f"{self.node}/{self.name}"

    def join(self, group: str) -> Group:
        return Group(self, group, self._do(lambda: self._core.join(group, threading.get_ident())))

    def lock(self, name: str, within: Duration | None = None) -> Guard:
        return Guard(self, name, *self._do(lambda: self._core.lock(name, within)))

    def lead(self, job: str) -> Leadership:
        return Leadership(self, job, *self._do(lambda: self._core.lead(job)))

    def map(self, name: str) -> Map:
        return Map(self, name)

    def counter(self, name: str) -> Counter:
        return Counter(self, name)

    def take_ids(self, count: int = 1) -> range:
        """Numbers that no other caller is ever given."""
        return self._do(lambda: protocol.take_ids(count))

    def serve(self, group: str, verb: str, handler: Handler) -> None:
        """Answers such requests with what the handler returns, one after the other, in a thread of their own."""
        self._serve(group, verb, handler)

    def serve_command(self, verb: str, handler: CommandHandler) -> None:
        """Does what nodes ask by this verb of the list, as `serve` does."""
        self._serve(None, verb, handler)

    def _serve(self, group: str | None, verb: str, handler: Callable[[Any], Payload | None]) -> None:
        stream = self._do(lambda: self._core.serve(group, verb))
        threading.Thread(target=self._answer, args=(stream, handler), name=f"antiphon {verb}", daemon=True).start()

    def call(self, group: str, verb: str, to: str | list[str] = "any", payload: Payload = b"",
             within: Duration | None = None) -> Answers:
        """`to`: "any", "all", or a list of nodes. An error if none answered."""
        return self._do(lambda: protocol.call(group, verb, to, payload, within))

    def command(self, verb: str, args: Args | None = None, to: str | list[str] = "all", *, by: str | None = None,
                reply: bool = True, within: Duration | None = None) -> Answers:
        """Has nodes do what their lists allow. `to`: "all", "one", "any", or a list of nodes. An error if none did it.

        `by`: the way, "library" if left out. Without `reply` it returns when the command is in the queues.
        """
        return self._do(lambda: protocol.command(verb, args, to, by, reply, within))

    def commands(self) -> dict[str, Any]:
        """What commands to peers did here, the version of the list, the queues."""
        return self._do(protocol.commands)

    def members(self) -> Members:
        return self._do(protocol.members)

    def why(self, node: str) -> tuple[str, ...]:
        return self._do(lambda: protocol.why(node))

    def close(self) -> None:
        """Leaves everything in order."""
        with self._lock:
            open_still = self._core.begin_close()
        leaving = threading.Thread(target=self._leave, name="antiphon leaves", daemon=True)
        if open_still and self._reader is not threading.current_thread():
            try:
                leaving.start()  # beside this thread, which must not wait until the agent reads
            except RuntimeError:  # at its end Python begins no thread any more
                self._leave()
            self._reader.join(CLOSE_WITHIN)
        self._cut()
        if leaving.is_alive():
            leaving.join(CLOSE_WITHIN)

    def _leave(self) -> None:
        with contextlib.suppress(Error):
            with self._lock:
                line = self._core.out(lines.line("leave", {}))
            self._write(line)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _called(self, welcome: Welcome) -> None:
        self.name, self.node = welcome.client, welcome.node
        self.cluster, self.build = welcome.cluster, welcome.build

    def _cut(self) -> None:
        self._cut_off("this client closed the connection")
        self._sock.close()

    def _cut_off(self, cause: str) -> None:
        """Also the agent is to know: it frees what this client held."""
        with self._lock:
            self._core.lose(cause)
        self._hang_up()

    def _do(self, make: Callable[[], Ask[T]], timeout: float | None = None) -> T:
        return self._finish(lambda: self._core.ask(make()), timeout)

    def _finish(self, begin: Callable[[], tuple[Asked[T], bytes]], timeout: float | None = None) -> T:
        with self._lock:
            asked, line = begin()
        with self._in_wait():
            try:
                self._write(line)
                with self._lock:
                    if not self._until(asked, lambda: asked.done, timeout):
                        raise TimeoutError(f"the agent did not answer within {timeout} s")
            except BaseException:
                with self._lock:
                    self._core.abandon(asked)
                raise
        return asked.take()

    @contextlib.contextmanager
    def _in_wait(self) -> Iterator[None]:
        """While this thread waits, it reads no group: see `core`."""
        who = threading.get_ident()
        with self._lock:
            self._core.begin_wait(who)
        try:
            yield
        finally:
            with self._lock:
                self._core.end_wait(who)
                late = self._take_outgoing()
            if late:
                with contextlib.suppress(Error):
                    self._write(late)

    def _take_outgoing(self) -> bytes:
        outgoing, self._core.outgoing = self._core.outgoing, []
        return b"".join(outgoing)

    def _until(self, cell: Cell, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits, with the lock held."""
        if ready():
            return True
        wake = threading.Condition(self._lock)
        cell.wakers.append(wake.notify_all)
        try:
            return wake.wait_for(ready, timeout)
        finally:
            cell.wakers.remove(wake.notify_all)

    def _write(self, line: bytes) -> None:
        """What `Core.out` gave: nothing if there is a link, which has it."""
        if not line:
            return
        try:
            with self._sending:
                self._send(line)
        except OSError as error:
            # The reader comes to its end, behind what was said before.
            self._reader.join(CLOSE_WITHIN)
            with self._lock:
                self._core.lose(f"the connection broke: {error}")
                self._core.check()

    def _send(self, line: bytes) -> None:
        """The handler of a signal may raise at any time. Behind half a line the next would be read as its rest."""
        sent: list[int] = []  # `extend` is C code: no handler runs between a part and its length
        try:
            while sum(sent) < len(line):
                sent.extend(map(self._sock.send, [memoryview(line)[sum(sent):]]))
        except OSError:
            raise
        except BaseException:
            if isinstance(self._sock, Tls) or 0 < sum(sent) < len(line):
                self._cut_off("a line was interrupted while it was written")
            raise

    def _read(self) -> None:
        while True:
            cause, broke, final = "the agent closed the connection", False, False
            try:
                self._take_in(b"")  # what came with the welcome
                while data := self._sock.recv(65536):
                    self._take_in(data)
            except Exception as error:  # whatever it is, those that wait are told
                cause, broke, final = f"the connection broke: {error!r}", True, not isinstance(error, OSError)
            with self._lock:
                may = not final and self._core.may_come_back(broke)
            why_not = self._come_back(cause) if may else ""
            if why_not is not None:
                break
        self._cut_off(cause + why_not)

    def _take_in(self, data: bytes) -> None:
        with self._lock:
            self._core.push(data)
            while self._core.step() or self._core.held_up():
                if self._core.outgoing and not self._writes_late:
                    self._writes_late = True
                    threading.Thread(target=self._write_late, name="antiphon writes", daemon=True).start()
                self._until(self._core.gate, lambda: not self._core.held_up())

    def _write_late(self) -> None:
        """Beside the reader, which must not wait until the agent reads."""
        while True:
            with self._lock:
                late = self._take_outgoing()
                self._writes_late = bool(late)
            if not late:
                return
            with contextlib.suppress(Error):
                self._write(late)

    # Coming back.

    def _come_back(self, cause: str) -> str | None:
        """Another connection in place of the one that broke; or why there is none."""
        core, link = self._core, self._core.link
        assert link
        self._hang_up()
        deadline, why_not = time.monotonic() + link.grace, ""
        while True:
            with self._lock:
                if self._until(link, lambda: core.cause is not None, self._next_try - time.monotonic()):
                    return ""
            now = time.monotonic()
            if now >= deadline:
                return f"; the agent was not reached again within {link.grace:g} s: {why_not}"
            self._next_try = now + TRY_EVERY
            try:
                return self._reconnect(cause, deadline - now)
            except Exception as error:  # whatever it is, there is time to try again
                why_not = str(error)

    def _reconnect(self, cause: str, within: float) -> None:
        sock = self._opening(within)
        try:
            sock.sendall(self._core.hello_again())
            said = b""
            while b"\n" not in said:
                data = sock.recv(65536)
                if not data or len(said) > MOST_WELCOME_BYTES:
                    raise ConnectionError("the agent closed the connection before it said who this is")
                said += data
            welcome, _, rest = said.partition(b"\n")
            sock.settimeout(None)
            with self._lock:
                before, self._sock = self._sock, sock
                try:
                    self._called(self._core.come_back(welcome, cause))
                except BaseException:
                    self._sock = before
                    raise
                self._core.push(rest)
            before.close()
        except BaseException:
            sock.close()
            raise

    def _write_kept(self, link: Link) -> None:
        """Beside the reader, which must not wait until the agent reads."""
        core = self._core
        while True:
            with self._lock:
                self._until(link, lambda: core.cause is not None or link.has_more())
                if core.cause is not None:
                    return
                sock, data = self._sock, link.next()
            try:
                sock.sendall(data)
            except OSError:
                with self._lock:
                    if self._sock is sock:  # the reader comes to its end, and goes on from there
                        link.up = False
                        self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _answer(self, stream: Stream, handler: Callable[[Any], Payload | None]) -> None:
        unanswered: Asking | None = None
        try:
            for request in Events[Asking](self, stream):
                unanswered = request
                try:
                    said = protocol.answer(request, handler(request))
                except Exception as error:  # whatever it is, the caller is told
                    said = protocol.raised(request, error)
                unanswered = None
                try:
                    self._finish(functools.partial(self._core.answer, request, said))
                except Error:
                    if self._core.cause is not None:
                        raise  # else this client goes on as a new one
        except Error:
            pass
        finally:  # also of a handler that ends its thread
            with self._in_wait(), self._lock:
                self._core.stop_serving(stream, unanswered)


class Events(Generic[T]):
    """An iterator that waits for the next event."""

    def __init__(self, client: Client, stream: Stream) -> None:
        self._client, self._stream = client, stream

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """The next event; `TimeoutError` if none comes, `StopIteration` behind the last."""
        with self._client._lock:
            if not self._client._until(self._stream, self._stream.ready, timeout):
                raise TimeoutError(f"nothing came within {timeout} s")
            return self._stream.take(threading.get_ident())  # type: ignore[no-any-return]


class Group(Events[GroupEvent]):
    """A group that this client is in: iterate over it. It is left at the end of a `with`."""

    def __init__(self, client: Client, name: str, stream: Stream) -> None:
        super().__init__(client, stream)
        self.name = name

    def send(self, payload: Payload, safe: bool = False, wait: bool = False) -> None:
        """Says it to all members. `wait`: until it is delivered. `safe`: only when every node of the group holds it."""
        self._say(lambda core: core.send(self.name, payload, safe), wait)

    def send_bundle(self, payloads: Iterable[Payload], safe: bool = False, wait: bool = False) -> None:
        """Says several things in one line. All members are told all of them, with nothing in between, or none."""
        several = [*payloads]
        self._say(lambda core: core.send_bundle(self.name, several, safe), wait)

    def _say(self, make: Callable[[Core], Ask[None]], wait: bool) -> None:
        def begin() -> tuple[Asked[None], bytes]:
            ask = make(core)
            return core.ask(ask) if wait else core.tell(lines.line(ask.op, ask.fields))
        core = self._client._core
        self._client._finish(begin)

    def leave(self) -> None:
        """What is unread is dropped."""
        core, stream = self._client._core, self._stream
        with contextlib.suppress(Error):
            if core.groups.get(self.name) is stream:
                self._client._do(lambda: core.leave(self.name))
                with self._client._in_wait(), self._client._lock:
                    self._client._until(stream, lambda: core.is_out(self.name, stream))

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave()


class Guard:
    """A lock that is held. Give `token` to what it protects: that refuses a lower one than it has seen."""

    def __init__(self, client: Client, name: str, id: int, token: int, lost: LostEvent) -> None:
        self._client, self.name, self._id, self.token, self.lost = client, name, id, token, lost

    def unlock(self) -> None:
        self._give_back("unlock")

    def _give_back(self, op: str, to: str | None = None) -> None:
        self._client._do(lambda: self._client._core.give_back(op, self._id, self.name, self.token, to))

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client._core.holds(self._id):
            self.unlock()


class Leadership(Guard):
    """A job that this client leads."""

    def resign(self, to: str | None = None) -> None:
        """`to`: the node that leads next, which must wait for it; else the one that has waited longest."""
        self._give_back("resign", to)

    def unlock(self) -> None:
        self.resign()


class Map:
    """Keys and values that all nodes share."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    def get(self, key: str, latest: bool = False) -> tuple[bytes, int] | None:
        """Value and version. `latest`: with all that was written before, anywhere."""
        return self._client._do(lambda: protocol.get(self.name, key, latest))

    def put(self, key: str, value: Payload, if_version: int | None = None, ttl: Duration | None = None) -> int:
        """The new version. `if_version`: only if the key has this one; 0: only if it has no value."""
        return self._client._do(lambda: protocol.put(self.name, key, value, if_version, ttl))

    def remove(self, key: str, if_version: int | None = None) -> tuple[bytes, int] | None:
        return self._client._do(lambda: protocol.remove(self.name, key, if_version))

    def watch(self, key: str | None = None, *, prefix: str | None = None) -> Watch:
        """What is there, and then each change."""
        ask = self._client._core.watch(self.name, key, prefix, threading.get_ident())
        return Watch(self._client, *self._client._do(lambda: ask))


class Watch(Events[WatchEvent]):
    """A watch of a map. It ends with `close`, or at the end of a `with`."""

    def __init__(self, client: Client, stream: Stream, id: int) -> None:
        super().__init__(client, stream)
        self._id = id

    def close(self) -> None:
        with self._client._lock:
            line = self._client._core.out(self._client._core.unwatch(self._id))
        with contextlib.suppress(Error), self._client._in_wait():
            self._client._write(line)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Counter:
    """A number that all nodes share."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    def add(self, by: int = 1) -> int:
        """Its new value."""
        return self._client._do(lambda: protocol.add(self.name, by))
