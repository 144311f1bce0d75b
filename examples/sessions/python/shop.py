#!/usr/bin/env python3
"""The same shop in Python, as a client of the Antiphon agent of its host.

    browsers ──► nginx ─┬─► this program ──► agent a ─┐
                        ├─► this program ──► agent b ─┼─ one cluster: the map `sessions`
                        └─► this program ──► agent c ─┘

Sessions are in the agents' map, under `session/ID`. Each change is written on condition that the session still has the
version that was read: no change undoes another, and no answer is stale although reads are those of the agent's copy.

The agent may be started again at any time. This program connects again; until then it passes visits on to other
servers (503), and lets a POST wait for a moment, since no balancer may try that elsewhere.
"""

import argparse
import asyncio
import contextlib
import html
import json
import re
import secrets
import sys
from pathlib import Path
from urllib.parse import parse_qs

import antiphon
import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route

HERE = Path(__file__).resolve().parent
LOGIN, SHOP = ((HERE.parent / name).read_text() for name in ("login.html", "shop.html"))
SCOPE = "session/"
MOST_BYTES = 64  # of a name, of an item
MOST_ITEMS = 200  # of a basket: a session stays small, since each request writes all of it
MOST_REQUEST_BYTES = 16 << 10
MOST_TRIES = 32  # while other servers change the same session; of those that collide one is always done
PAGE_MESSAGES = 16  # may wait for an open page before it has to connect again
PATIENCE = 5.0  # seconds that a POST waits for the agent


class NoSession(Exception):
    """It ended, or never was."""


class Refused(Exception):
    """The change itself says no."""


class Sessions:
    """The sessions of all servers, and the pages that are open at this one."""

    def __init__(self, agent: str, time_to_live: float) -> None:
        self.agent, self.time_to_live = agent, time_to_live
        self.map: antiphon.aio.Map | None = None
        self.there = asyncio.Event()
        self.pages: dict[str, set[asyncio.Queue[str | None]]] = {}

    async def keep(self) -> None:
        """Connects to the agent, again and again; tells pages what is changed, by whichever server."""
        said = ""
        while True:
            try:
                async with await antiphon.aio.connect(self.agent) as client:
                    sessions = client.map("sessions")
                    # With the answer the agent has the sessions, and is one that keeps them for the others.
                    await sessions.get(SCOPE, latest=True)
                    self.map, said = sessions, ""
                    self.there.set()
                    async with await sessions.watch(prefix=SCOPE) as changes:
                        async for change in changes:
                            if isinstance(change, antiphon.Changed) and change.value is not None:
                                self.pass_on(change)
            except Exception as error:  # also one that nobody thought of: without this task there are no sessions
                text = f"{type(error).__name__}: {error}"
                if said != text:
                    said = text
                    print(f"the agent at {self.agent} does not serve: {said}", file=sys.stderr, flush=True)
            finally:
                self.map = None
                self.there.clear()
            await asyncio.sleep(0.1)

    async def ready(self, patience: float) -> antiphon.aio.Map:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.there.wait(), patience)
        if self.map is None:
            raise antiphon.Error("unavailable", "this server's agent does not serve", "no")
        return self.map

    async def begin(self, user: str, before: str | None) -> tuple[str, dict]:
        """The id is new at each login: one that somebody else made the browser use before is worth nothing."""
        sessions = await self.ready(PATIENCE)
        id, session = secrets.token_hex(16), {"user": user, "visits": 0, "basket": []}
        await sessions.put(SCOPE + id, json.dumps(session), if_version=0, ttl=self.time_to_live)
        if before:
            try:
                await sessions.remove(SCOPE + before)
            except antiphon.Error as error:
                error.ran = "maybe"  # the new session is there, whatever became of the one before
                raise
        return id, session

    async def change(self, id: str, change, patience: float) -> tuple[dict, int]:
        """Changes a session; gives it as it is then, with its version. Its time to live begins again."""
        sessions, key = await self.ready(patience), SCOPE + id
        # If it is not here, perhaps it is on its way from the server that the browser has just logged in at.
        found = await sessions.get(key) or await sessions.get(key, latest=True)
        for _ in range(MOST_TRIES):
            if found is None:
                raise NoSession
            session, version = json.loads(found[0]), found[1]
            change(session)
            try:
                condition = None if arguments.plant == "blind" else version
                put = sessions.put(key, json.dumps(session), if_version=condition, ttl=self.time_to_live)
                return session, await put
            except antiphon.Error as error:
                if error.code != "conflict":
                    raise
            # The agent has applied all that stands before the refusal: its copy has what was in the way.
            found = await sessions.get(key)
        raise antiphon.Error("unavailable", "other requests change this session all the time: try again", "no")

    async def read(self, id: str) -> tuple[dict, int]:
        found = await (await self.ready(0)).get(SCOPE + id, latest=True)
        if found is None:
            raise NoSession
        return json.loads(found[0]), found[1]

    async def end(self, id: str) -> None:
        await (await self.ready(PATIENCE)).remove(SCOPE + id)

    def pass_on(self, change: antiphon.Changed) -> None:
        try:
            said = shown(json.loads(change.value), change.version)
        except (ValueError, TypeError, RecursionError) as error:  # any client of an agent may write to the map
            print(f"{change.key} is no session: {error}", file=sys.stderr, flush=True)
        else:
            self.tell(change.key, said)

    def tell(self, key: str, said: dict) -> None:
        for page in list(self.pages.get(key, ())):
            if page.qsize() < PAGE_MESSAGES:
                page.put_nowait(json.dumps(said))
            else:  # it takes nothing: it is to connect again
                self.close(key, page)

    def open(self, key: str) -> asyncio.Queue[str | None]:
        page: asyncio.Queue[str | None] = asyncio.Queue()
        self.pages.setdefault(key, set()).add(page)
        return page

    def close(self, key: str, page: asyncio.Queue[str | None]) -> None:
        page.put_nowait(None)
        of_session = self.pages.get(key, set())
        of_session.discard(page)
        if not of_session:
            self.pages.pop(key, None)

    def close_all(self) -> None:
        for key, pages in list(self.pages.items()):
            for page in list(pages):
                self.close(key, page)


class Local(Sessions):
    """A planted mistake, to show that the check finds it: each server has its own sessions."""

    async def keep(self) -> None:
        self.map = LocalMap()
        self.there.set()


class LocalMap(dict):
    async def get(self, key, latest=False):
        return super().get(key)

    async def put(self, key, value, if_version=None, ttl=None):
        self[key] = (value, 1)
        return 1

    async def remove(self, key):
        self.pop(key, None)


def shown(session: dict, version: int) -> dict:
    """The version as text: numbers of 64 bits are not safe in JavaScript."""
    return {**session, "version": str(version), "server": arguments.name}


def wants_json(request) -> bool:
    return request.headers.get("accept", "").startswith("application/json")


def session_id(request) -> str | None:
    """The id in the cookie, if it looks like one of ours."""
    id = request.cookies.get("sid", "")
    return id if re.fullmatch("[0-9a-f]{32}", id) else None


def set_cookie(response, id: str, seconds: float) -> None:
    """Behind TLS add `secure`: then the cookie never goes in the clear."""
    response.set_cookie("sid", id, max_age=int(seconds), path="/", httponly=True, samesite="lax")


async def field(request, name: str) -> str:
    """Of a form, and within its bounds."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_REQUEST_BYTES:
            raise Refused("the request is too large")
    value = parse_qs(body.decode(errors="replace")).get(name, [""])[0].strip()
    if not 1 <= len(value.encode()) <= MOST_BYTES or not value.isprintable():
        raise Refused(f"`{name}` has 1 to {MOST_BYTES} bytes, and no control characters")
    return value


def done(request, said: dict):
    """A browser is led to the page, a program gets the session."""
    return JSONResponse(said) if wants_json(request) else RedirectResponse("/", 303)


def handler(handle):
    """What went wrong becomes a status; nothing on the way may keep what belongs to one browser."""
    async def handled(request):
        try:
            response = await handle(request)
        except NoSession:
            response = JSONResponse({"error": "there is no such session: log in"}, 401)
        except Refused as refused:
            response = JSONResponse({"error": str(refused)}, 422)
        except antiphon.Error as error:
            response = JSONResponse({"error": str(error), "ran": error.ran}, 503, {"retry-after": "1"})
        response.headers["cache-control"] = "no-store"
        return response
    return handled


@handler
async def show(request):
    def visit(session):
        session["visits"] += 1
    try:
        id = session_id(request)
        if id is None:
            raise NoSession
        session, version = await sessions.change(id, visit, 0)
    except NoSession:
        if wants_json(request):
            raise
        return HTMLResponse(LOGIN)
    if wants_json(request):
        return JSONResponse(shown(session, version))
    places = {"VISITS": session["visits"], "SERVER": html.escape(arguments.name), "USER": html.escape(session["user"]),
              "ITEMS": "".join(f"<li>{html.escape(item)}</li>" for item in session["basket"])}
    return HTMLResponse(re.sub("@([A-Z]+)@", lambda place: str(places[place[1]]), SHOP))


@handler
async def login(request):
    id, session = await sessions.begin(await field(request, "user"), session_id(request))
    response = done(request, shown(session, 0))
    set_cookie(response, id, arguments.time_to_live)
    return response


@handler
async def basket(request):
    item, id = await field(request, "item"), session_id(request)
    if id is None:
        raise NoSession

    def put(session):
        if len(session["basket"]) >= MOST_ITEMS:
            raise Refused(f"the basket is full: it takes {MOST_ITEMS} items")
        session["basket"].append(item)
    session, version = await sessions.change(id, put, PATIENCE)
    return done(request, shown(session, version))


@handler
async def logout(request):
    if id := session_id(request):
        await sessions.end(id)
    response = done(request, {"server": arguments.name})
    set_cookie(response, "", 0)
    return response


@handler
async def events(request):
    if (id := session_id(request)) is None:
        raise NoSession
    # Open before the session is read: nothing that is told after it is missed.
    key = SCOPE + id
    page = sessions.open(key)
    try:
        first = json.dumps(shown(*await sessions.read(id)))
    except BaseException:
        sessions.close(key, page)
        raise

    async def stream():
        try:
            said = first
            while said is not None:
                yield f"data: {said}\n\n"
                said = await page.get()
        finally:
            sessions.close(key, page)
    return StreamingResponse(stream(), media_type="text/event-stream")


@handler
async def ready(request):
    if server.should_exit:
        raise antiphon.Error("unavailable", "this server stops", "no")
    await (await sessions.ready(0)).get(SCOPE)
    return JSONResponse({"server": arguments.name})


@contextlib.asynccontextmanager
async def lifespan(_):
    """No connection is taken before there are sessions to serve."""
    keeping = asyncio.create_task(sessions.keep())
    await sessions.there.wait()
    print(f"serving {arguments.serve}", flush=True)
    yield
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping


class Server(uvicorn.Server):
    """On SIGTERM it takes no connection any more, and answers what it has taken. What open pages read ends, so that they
    connect again to another server."""

    def handle_exit(self, sig, frame):
        if not self.started:  # it waits for its agent
            raise SystemExit(0)
        asyncio.get_running_loop().call_soon_threadsafe(sessions.close_all)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets=None):
        for listener in self.servers:
            listener.close()
        # uvicorn cuts connections whose request it has not read yet, and a POST is not tried again then.
        await asyncio.sleep(0.3)
        await super().shutdown(sockets)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="127.0.0.1:7480", help="the agent of this host")
    parser.add_argument("--name", default="a", help="what this server is called")
    parser.add_argument("--serve", default="127.0.0.1:8080", help="where to serve browsers")
    parser.add_argument("--time-to-live", type=float, default=1800, help="seconds, after its last request")
    parser.add_argument("--plant", choices=["local", "blind"], help="a mistake to make, to see that the check finds it")
    arguments = parser.parse_args()
    sessions = (Local if arguments.plant == "local" else Sessions)(arguments.agent, arguments.time_to_live)
    routes = [Route("/", show), Route("/login", login, methods=["POST"]), Route("/basket", basket, methods=["POST"]),
              Route("/logout", logout, methods=["POST"]), Route("/events", events), Route("/readyz", ready)]
    host, _, port = arguments.serve.rpartition(":")
    server = Server(uvicorn.Config(Starlette(routes=routes, lifespan=lifespan), host=host, port=int(port),
                                   access_log=False, log_level="warning", timeout_graceful_shutdown=10))
    server.run()
