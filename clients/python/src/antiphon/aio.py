"""The client for asyncio: the same methods as that for threads, each to be awaited."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from . import address as place
from . import core as protocol
from . import lines
from .cell import Cell
from .core import Args, Ask, Asked, Asking, Core, Stream
from .events import Answers, Command, ConnectionLost, Error, GroupEvent, Members, Request, WatchEvent, Welcome
from .lines import Duration, Payload
from .link import TRY_EVERY, Link, seconds

T = TypeVar("T")
CLOSE_WITHIN = 5.0  # seconds, for leaving in order
Handler = Callable[[Request], "Awaitable[Payload | None] | Payload | None"]
CommandHandler = Callable[[Command], "Awaitable[Payload | None] | Payload | None"]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LostEvent(asyncio.Event):
    """Is set when a lock or a leadership is lost; `cause` says why."""

    cause: str | None = None

    def tell(self, cause: str) -> None:
        self.cause = cause
        self.set()


async def connect(address: str, name: str | None = None, *, timeout: float = 10.0,
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
        client = Client(*await asyncio.wait_for(opening(), timeout), buffer_bytes, link, opening)
        try:
            client._called(await asyncio.wait_for(client._do(client._core.hello(name, token)), timeout))
        except BaseException:
            client._cut()
            raise
    except (OSError, asyncio.TimeoutError) as error:  # before Python 3.11 the second is not one of the first
        raise place.not_reached(address, error, timeout) from error
    return client


async def _open(where: tuple[str, int] | str, tls: ssl.SSLContext | None) -> Streams:
    if isinstance(where, str):
        while not (found := place.try_unix(where)):
            await asyncio.sleep(place.TRY_UNIX_EVERY)
        return await asyncio.open_unix_connection(sock=found)
    reader, writer = await asyncio.open_connection(*where, ssl=tls)
    place.prepare(writer.get_extra_info("socket"))
    return reader, writer


class Client:
    """One connection, or with `grace` one after the other, for the tasks of one event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, buffer_bytes: int,
                 link: Link | None, opening: Callable[[], Awaitable[Streams]]) -> None:
        self._writer, self._opening = writer, opening
        self._core = Core(LostEvent, buffer_bytes, link)
        self._next_try = 0.0
        self.name = self.node = self.cluster = self.build = ""
        self._reader = asyncio.create_task(self._read(reader))
        self._handlers: set[asyncio.Task[None]] = set()
        if link:
            link.wakers.append(lambda: self._write_kept(link))

    @property
    def member(self) -> str:
        """What this client is called in groups."""
        return f"{self.node}/{self.name}"

    async def join(self, group: str) -> Group:
        return Group(self, group, await self._do(self._core.join(group, asyncio.current_task())))

    async def lock(self, name: str, within: Duration | None = None) -> Guard:
        return Guard(self, name, *await self._do(self._core.lock(name, within)))

    async def lead(self, job: str) -> Leadership:
        return Leadership(self, job, *await self._do(self._core.lead(job)))

    def map(self, name: str) -> Map:
        return Map(self, name)

    def counter(self, name: str) -> Counter:
        return Counter(self, name)

    async def take_ids(self, count: int = 1) -> range:
        """Numbers that no other caller is ever given."""
        return await self._do(protocol.take_ids(count))

    async def serve(self, group: str, verb: str, handler: Handler) -> None:
        """Answers such requests with what the handler returns, one after the other, in a task of their own."""
        await self._serve(group, verb, handler)

    async def serve_command(self, verb: str, handler: CommandHandler) -> None:
        """Does what nodes ask by this verb of the list, as `serve` does."""
        await self._serve(None, verb, handler)

    async def _serve(self, group: str | None, verb: str, handler: Callable[[Any], Any]) -> None:
        stream = await self._do(self._core.serve(group, verb))
        task = asyncio.create_task(self._answer(stream, handler))
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    async def call(self, group: str, verb: str, to: str | list[str] = "any", payload: Payload = b"",
                   within: Duration | None = None) -> Answers:
        """`to`: "any", "all", or a list of nodes. An error if none answered."""
        return await self._do(protocol.call(group, verb, to, payload, within))

    async def command(self, verb: str, args: Args | None = None, to: str | list[str] = "all", *,
                      by: str | None = None, reply: bool = True, within: Duration | None = None) -> Answers:
        """Has nodes do what their lists allow. `to`: "all", "one", "any", or a list of nodes. An error if none did it.

        `by`: the way, "library" if left out. Without `reply` it returns when the command is in the queues.
        """
        return await self._do(protocol.command(verb, args, to, by, reply, within))

    async def commands(self) -> dict[str, Any]:
        """What commands to peers did here, the version of the list, the queues."""
        return await self._do(protocol.commands())

    async def members(self) -> Members:
        return await self._do(protocol.members())

    async def why(self, node: str) -> tuple[str, ...]:
        return await self._do(protocol.why(node))

    async def close(self) -> None:
        """Leaves everything in order."""
        if self._core.begin_close():
            with contextlib.suppress(Error, asyncio.TimeoutError):  # the agent may not read
                await asyncio.wait_for(self._leave(), CLOSE_WITHIN)
        self._cut()

    async def _leave(self) -> None:
        await self._write(self._core.out(lines.line("leave", {})))
        await asyncio.wait([self._reader])

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        at: TracebackType | None) -> None:
        await self.close()

    def _called(self, welcome: Welcome) -> None:
        self.name, self.node = welcome.client, welcome.node
        self.cluster, self.build = welcome.cluster, welcome.build

    def _cut(self) -> None:
        self._core.lose("this client closed the connection")
        if self._reader.done():
            self._writer.close()
        else:  # what is not written yet would keep it open
            self._writer.transport.abort()
        if self._core.link:
            self._reader.cancel()

    async def _do(self, ask: Ask[T]) -> T:
        return await self._finish(*self._core.ask(ask))

    async def _finish(self, asked: Asked[T], line: bytes) -> T:
        with self._in_wait():
            try:
                await self._write(line)
                await self._until(asked, lambda: asked.done)
            except ConnectionLost:
                if asked.ask is protocol.TELL or not asked.done:
                    self._core.abandon(asked)
                    raise  # else it is known what became of it
            except BaseException:
                self._core.abandon(asked)
                raise
        return asked.take()

    @contextlib.contextmanager
    def _in_wait(self) -> Iterator[None]:
        """While this task waits, it reads no group: see `core`."""
        who = asyncio.current_task()
        self._core.begin_wait(who)
        try:
            yield
        finally:
            self._core.end_wait(who)
            self._flush()

    def _flush(self) -> None:
        if self._core.outgoing and not self._writer.is_closing():
            self._writer.write(b"".join(self._core.outgoing))
        self._core.outgoing.clear()

    async def _until(self, cell: Cell, ready: Callable[[], bool]) -> None:
        while not ready():
            woken = asyncio.Event()
            cell.wakers.append(woken.set)
            try:
                await woken.wait()
            finally:
                cell.wakers.remove(woken.set)

    async def _write(self, line: bytes) -> None:
        """What `Core.out` gave: nothing if there is a link, which has it."""
        if not line:
            return
        self._core.check()
        self._writer.write(line)
        try:
            await self._writer.drain()
        except OSError as error:
            # The reader comes to its end, behind what was said before.
            await asyncio.wait([self._reader], timeout=CLOSE_WITHIN)
            self._core.lose(f"the connection broke: {error}")
            # Its own line may be said: what it waits for is also that of the others.
            raise ConnectionLost(self._core.cause or str(error)) from None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            cause, broke, final = "the agent closed the connection", False, False
            try:
                while data := await reader.read(65536):
                    self._core.push(data)
                    while self._core.step() or self._core.held_up():
                        self._flush()
                        await self._until(self._core.gate, lambda: not self._core.held_up())
            except Exception as error:  # whatever it is, those that wait are told
                cause, broke, final = f"the connection broke: {error!r}", True, not isinstance(error, OSError)
            if final or not self._core.may_come_back(broke):
                break
            came_back = await self._come_back(cause)
            if isinstance(came_back, str):
                cause += came_back
                break
            reader = came_back
        self._core.lose(cause)
        self._writer.transport.abort()  # also the agent is to know: it frees what this client held

    # Coming back.

    async def _come_back(self, cause: str) -> asyncio.StreamReader | str:
        """Another connection in place of the one that broke; or why there is none."""
        link, clock = self._core.link, asyncio.get_running_loop()
        assert link
        self._writer.transport.abort()
        deadline, why_not = clock.time() + link.grace, ""
        while True:
            await asyncio.sleep(self._next_try - clock.time())
            now = clock.time()
            if now >= deadline:
                return f"; the agent was not reached again within {link.grace:g} s: {why_not}"
            self._next_try = now + TRY_EVERY
            try:
                return await asyncio.wait_for(self._reconnect(cause), deadline - now)
            except Exception as error:  # whatever it is, there is time to try again
                why_not = str(error) or type(error).__name__

    async def _reconnect(self, cause: str) -> asyncio.StreamReader:
        reader, writer = await self._opening()
        try:
            writer.write(self._core.hello_again())
            welcome = await reader.readline()
            if not welcome:
                raise ConnectionError("the agent closed the connection before it said who this is")
            before, self._writer = self._writer, writer
            try:
                self._called(self._core.come_back(welcome, cause))
            except BaseException:
                self._writer = before
                raise
            return reader
        except BaseException:
            writer.close()
            raise

    def _write_kept(self, link: Link) -> None:
        while not self._writer.is_closing() and (data := link.next()):
            self._writer.write(data)

    async def _answer(self, stream: Stream, handler: Callable[[Any], Any]) -> None:
        unanswered: Asking | None = None
        try:
            async for request in Events[Asking](self, stream):
                unanswered = request
                try:
                    payload = handler(request)
                    said = protocol.answer(request, await payload if isinstance(payload, Awaitable) else payload)
                except Exception as error:  # whatever it is, the caller is told
                    said = protocol.raised(request, error)
                unanswered = None
                try:
                    await self._finish(*self._core.answer(request, said))
                except Error:
                    if self._core.cause is not None:
                        raise  # else this client goes on as a new one
        except Error:
            pass
        finally:  # also of a handler that is cancelled, and of its task
            self._core.stop_serving(stream, unanswered)
            self._flush()


class Events(Generic[T]):
    """An iterator that waits for the next event."""

    def __init__(self, client: Client, stream: Stream) -> None:
        self._client, self._stream = client, stream

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        await self._client._until(self._stream, self._stream.ready)
        try:
            return self._stream.take(asyncio.current_task())  # type: ignore[no-any-return]
        except StopIteration:
            raise StopAsyncIteration from None

    async def next(self, timeout: float | None = None) -> T:
        """The next event; `TimeoutError` if none comes, `StopAsyncIteration` behind the last."""
        try:  # only the wait: `wait_for` may run it in another task, which does not count as the reader
            await asyncio.wait_for(self._client._until(self._stream, self._stream.ready), timeout)
        except asyncio.TimeoutError:  # before Python 3.11 another class
            raise TimeoutError(f"nothing came within {timeout} s") from None
        return await self.__anext__()


class Group(Events[GroupEvent]):
    """A group that this client is in: iterate over it. It is left at the end of an `async with`."""

    def __init__(self, client: Client, name: str, stream: Stream) -> None:
        super().__init__(client, stream)
        self.name = name

    async def send(self, payload: Payload, safe: bool = False, wait: bool = False) -> None:
        """Says it to all members. `wait`: until it is delivered. `safe`: only when every node of the group holds it."""
        await self._say(self._client._core.send(self.name, payload, safe), wait)

    async def send_bundle(self, payloads: Iterable[Payload], safe: bool = False, wait: bool = False) -> None:
        """Says several things in one line. All members are told all of them, with nothing in between, or none."""
        await self._say(self._client._core.send_bundle(self.name, [*payloads], safe), wait)

    async def _say(self, ask: Ask[None], wait: bool) -> None:
        core = self._client._core
        await self._client._finish(*(core.ask(ask) if wait else core.tell(lines.line(ask.op, ask.fields))))

    async def leave(self) -> None:
        """What is unread is dropped."""
        core, stream = self._client._core, self._stream
        with contextlib.suppress(Error):
            if core.groups.get(self.name) is stream:
                await self._client._do(core.leave(self.name))
                with self._client._in_wait():
                    await self._client._until(stream, lambda: core.is_out(self.name, stream))

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        at: TracebackType | None) -> None:
        await self.leave()


class Guard:
    """A lock that is held. Give `token` to what it protects: that refuses a lower one than it has seen."""

    def __init__(self, client: Client, name: str, id: int, token: int, lost: LostEvent) -> None:
        self._client, self.name, self._id, self.token, self.lost = client, name, id, token, lost

    async def unlock(self) -> None:
        await self._give_back("unlock")

    async def _give_back(self, op: str, to: str | None = None) -> None:
        await self._client._do(self._client._core.give_back(op, self._id, self.name, self.token, to))

    async def __aenter__(self: T) -> T:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        at: TracebackType | None) -> None:
        if self._client._core.holds(self._id):
            await self.unlock()


class Leadership(Guard):
    """A job that this client leads."""

    async def resign(self, to: str | None = None) -> None:
        """`to`: the node that leads next, which must wait for it; else the one that has waited longest."""
        await self._give_back("resign", to)

    async def unlock(self) -> None:
        await self.resign()


class Map:
    """Keys and values that all nodes share."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    async def get(self, key: str, latest: bool = False) -> tuple[bytes, int] | None:
        """Value and version. `latest`: with all that was written before, anywhere."""
        return await self._client._do(protocol.get(self.name, key, latest))

    async def put(self, key: str, value: Payload, if_version: int | None = None, ttl: Duration | None = None) -> int:
        """The new version. `if_version`: only if the key has this one; 0: only if it has no value."""
        return await self._client._do(protocol.put(self.name, key, value, if_version, ttl))

    async def remove(self, key: str, if_version: int | None = None) -> tuple[bytes, int] | None:
        """Value and version that it had."""
        return await self._client._do(protocol.remove(self.name, key, if_version))

    async def watch(self, key: str | None = None, *, prefix: str | None = None) -> Watch:
        """What is there, and then each change."""
        ask = self._client._core.watch(self.name, key, prefix, asyncio.current_task())
        return Watch(self._client, *await self._client._do(ask))


class Watch(Events[WatchEvent]):
    """A watch of a map. It ends with `close`, or at the end of an `async with`."""

    def __init__(self, client: Client, stream: Stream, id: int) -> None:
        super().__init__(client, stream)
        self._id = id

    async def close(self) -> None:
        core = self._client._core
        with contextlib.suppress(Error), self._client._in_wait():
            await self._client._write(core.out(core.unwatch(self._id)))

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        at: TracebackType | None) -> None:
        await self.close()


class Counter:
    """A number that all nodes share."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    async def add(self, by: int = 1) -> int:
        """Its new value."""
        return await self._client._do(protocol.add(self.name, by))
