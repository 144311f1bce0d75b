"""The client for threads: one thread reads the connection, and those that ask wait for it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

from . import core as protocol
from .core import Ask, Cell, Core, Duration, Payload, Stream
from .events import Answers, Error, GroupEvent, Members, Request, WatchEvent

T = TypeVar("T")
CLOSE_WITHIN = 5.0  # seconds, for leaving in order
Handler = Callable[[Request], "Payload | None"]


class LostEvent(threading.Event):
    """Is set when a lock or a leadership is lost; `cause` says why."""

    cause: str | None = None

    def tell(self, cause: str) -> None:
        self.cause = cause
        self.set()


def connect(address: str, name: str | None = None, *, timeout: float = 10.0,
            buffer_bytes: int = protocol.BUFFER_BYTES) -> Client:
    """A client of the agent at "host:port" or "unix:/path", called `name` in groups."""
    where = protocol.address(address)
    if isinstance(where, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout)
        sock.connect(where)
    else:
        sock = socket.create_connection(where, timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(None)
    client = Client(sock, buffer_bytes)
    try:
        client._hello(name, timeout)
    except BaseException:
        client._cut()
        raise
    return client


class Client:
    """One connection. Its methods may be called by any thread."""

    def __init__(self, sock: socket.socket, buffer_bytes: int = protocol.BUFFER_BYTES) -> None:
        self._sock = sock
        self._lock = threading.Lock()  # of the core
        self._sending = threading.Lock()
        self._core = Core(LostEvent, buffer_bytes)
        self.name = self.node = self.cluster = self.build = ""
        self._reader = threading.Thread(target=self._read, name="antiphon", daemon=True)
        self._reader.start()

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
        stream = self._do(lambda: self._core.serve(group, verb))
        threading.Thread(target=self._answer, args=(stream, handler), name=f"antiphon {verb}", daemon=True).start()

    def call(self, group: str, verb: str, to: str | list[str] = "any", payload: Payload = b"",
             within: Duration | None = None) -> Answers:
        """`to`: "any", "all", or a list of nodes. An error if none answered."""
        return self._do(lambda: protocol.call(group, verb, to, payload, within))

    def members(self) -> Members:
        return self._do(protocol.members)

    def why(self, node: str) -> tuple[str, ...]:
        return self._do(lambda: protocol.why(node))

    def close(self) -> None:
        """Leaves everything in order."""
        with self._lock:
            open_still = self._core.begin_close()
        if open_still and self._reader is not threading.current_thread():
            with contextlib.suppress(Error):
                self._write(protocol.line("leave", {}))
            self._reader.join(CLOSE_WITHIN)
        self._cut()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _hello(self, name: str | None, timeout: float) -> None:
        welcome = self._do(lambda: protocol.hello(name), timeout)
        self.name, self.node = welcome.client, welcome.node
        self.cluster, self.build = welcome.cluster, welcome.build

    def _cut(self) -> None:
        with self._lock:
            self._core.lose("this client closed the connection")
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _do(self, make: Callable[[], Ask[T]], timeout: float | None = None) -> T:
        with self._lock:
            asked, line = self._core.ask(make())
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
                late = b"".join(self._core.outgoing)
                self._core.outgoing.clear()
            if late:
                with contextlib.suppress(Error):
                    self._write(late)

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
        try:
            with self._sending:
                self._sock.sendall(line)
        except OSError as error:
            # The reader comes to its end, behind what was said before.
            self._reader.join(CLOSE_WITHIN)
            with self._lock:
                self._core.lose(f"the connection broke: {error}")
                self._core.check()

    def _read(self) -> None:
        cause = "the agent closed the connection"
        try:
            while data := self._sock.recv(65536):
                with self._lock:
                    self._core.push(data)
                    while self._core.step() or self._core.held_up():
                        self._until(self._core.gate, lambda: not self._core.held_up())
        except Exception as error:  # whatever it is, those that wait are told
            cause = f"the connection broke: {error!r}"
        with self._lock:
            self._core.lose(cause)

    def _answer(self, stream: Stream, handler: Handler) -> None:
        with contextlib.suppress(Error):
            for request in Events[Request](self, stream):
                try:
                    line = protocol.answer(request, handler(request))
                except Exception as error:  # whatever it is, the caller is told
                    line = protocol.answer(request, None, str(error) or type(error).__name__)
                with self._in_wait():
                    self._write(line)


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
        client = self._client
        if wait:
            return client._do(lambda: client._core.send(self.name, payload, safe))
        with client._lock:
            ask = client._core.send(self.name, payload, safe)
        with client._in_wait():
            client._write(protocol.line("send", ask.fields))

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
            line = self._client._core.unwatch(self._id)
        if line:
            with contextlib.suppress(Error):
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
