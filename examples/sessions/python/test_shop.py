"""The shop without an agent, a web server or a network: `python3 -m unittest discover examples/sessions/python`.

`examples/sessions/run` tries what browsers see while servers die. Here is what they hardly meet: changes that collide
each time, an agent that refuses at a certain moment, and entries of the map that are no sessions.
"""

import argparse
import asyncio
import contextlib
import io
import json
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "clients/python/src")]

import antiphon  # noqa: E402

WITHIN = 20  # seconds


class Response:
    """What a handler of the shop has answered."""

    def __init__(self, content=None, status_code=200, headers=None, media_type=None):
        self.content, self.status, self.headers, self.cookies = content, status_code, dict(headers or {}), {}

    def set_cookie(self, name, value, max_age, **_):
        self.cookies[name] = (value, max_age)


class Request:
    """A form, or none, of a browser with this cookie, or of a program."""

    def __init__(self, body="", sid=None, program=True):
        self.body = body.encode()
        self.headers = {"accept": "application/json" if program else "text/html"}
        self.cookies = {} if sid is None else {"sid": sid}

    async def stream(self):
        for begin in range(0, len(self.body), 7):
            yield self.body[begin:begin + 7]


def stand_in(name, **has):
    module = types.ModuleType(name)
    vars(module).update(has)
    return module


# The frameworks are not installed everywhere, and the shop hardly speaks to them before it serves.
FRAMEWORKS = [
    stand_in("uvicorn", Server=object, Config=None),
    stand_in("starlette"),
    stand_in("starlette.applications", Starlette=None),
    stand_in("starlette.responses", HTMLResponse=Response, JSONResponse=Response, RedirectResponse=Response,
             StreamingResponse=Response),
    stand_in("starlette.routing", Route=None),
]
with mock.patch.dict(sys.modules, {module.__name__: module for module in FRAMEWORKS}):
    import shop  # noqa: E402


class FakeMap:
    """The map of all agents, and the copy of this server's agent, which has what it is asked the latest of."""

    def __init__(self):
        self.all, self.copy, self.times, self.version = {}, {}, {}, 0
        self.before_puts = []  # what other servers do right before the next puts, one each
        self.fails = {}  # the operations of these names, with these errors

    def write(self, key, session):
        """By another server: the copy does not have it yet."""
        self.version += 1
        self.all[key] = (json.dumps(session).encode(), self.version)

    async def get(self, key, latest=False):
        if latest:
            self.copy = dict(self.all)
        return self.copy.get(key)

    async def put(self, key, value, if_version=None, ttl=None):
        if self.before_puts:
            self.before_puts.pop(0)()
        if error := self.fails.get("put"):
            raise error
        found = self.all[key][1] if key in self.all else 0
        if if_version not in (None, found):
            self.copy = dict(self.all)  # what was in the way stands before the refusal
            raise antiphon.Error("conflict", f"{key} has version {found}", "no", version=found)
        self.write(key, json.loads(value))
        self.copy, self.times[key] = dict(self.all), ttl
        return self.version

    async def remove(self, key):
        if error := self.fails.get("remove"):
            raise error
        self.copy.pop(key, None)
        return self.all.pop(key, None)


def session(user="ann", visits=0, basket=()):
    return {"user": user, "visits": visits, "basket": list(basket)}


def visit(session):
    session["visits"] += 1


class ShopTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.map, self.sid = FakeMap(), "0" * 32
        self.key = shop.SCOPE + self.sid
        self.sessions = shop.Sessions("a:1", 60.0)
        self.has_agent(self.map)
        shop.sessions = self.sessions
        shop.arguments = argparse.Namespace(name="a", plant=None, time_to_live=60.0)
        shop.server = types.SimpleNamespace(should_exit=False)

    def has_agent(self, map):
        self.sessions.map = map
        self.sessions.there.clear() if map is None else self.sessions.there.set()

    def there(self, key):
        return json.loads(self.map.all[key][0])

    async def errors_of(self, awaitable):
        with self.assertRaises(antiphon.Error) as raised:
            await awaitable
        return raised.exception.code, raised.exception.ran


class Sessions(ShopTest):
    async def test_a_change_is_made_again_on_what_another_server_wrote_meanwhile(self):
        self.map.write(self.key, session())
        self.map.before_puts = [lambda: self.map.write(self.key, session(visits=5, basket=["tea"]))] * 2
        changed, version = await self.sessions.change(self.sid, visit, 0)
        self.assertEqual(changed, session(visits=6, basket=["tea"]))
        self.assertEqual((self.there(self.key), self.map.all[self.key][1]), (changed, version))
        self.assertEqual(self.map.times[self.key], 60.0)

    async def test_a_change_that_collides_each_time_is_given_up_and_did_not_happen(self):
        self.map.write(self.key, session())
        self.map.before_puts = [lambda: self.map.write(self.key, session(basket=["tea"]))] * shop.MOST_TRIES
        self.assertEqual(await self.errors_of(self.sessions.change(self.sid, visit, 0)), ("unavailable", "no"))
        self.assertEqual(self.map.before_puts, [])
        self.assertEqual(self.there(self.key)["visits"], 0)

    async def test_a_session_that_ends_while_it_is_changed_does_not_come_back(self):
        self.map.write(self.key, session())
        self.map.before_puts = [lambda: self.map.all.pop(self.key)]
        with self.assertRaises(shop.NoSession):
            await self.sessions.change(self.sid, visit, 0)
        self.assertEqual(self.map.all, {})

    async def test_what_the_agent_says_of_a_write_is_not_tried_again(self):
        self.map.write(self.key, session())
        self.map.fails["put"] = antiphon.ConnectionLost("it is gone")
        self.assertEqual(await self.errors_of(self.sessions.change(self.sid, visit, 0)), ("connection", "maybe"))

    async def test_a_login_whose_earlier_session_cannot_be_ended_may_have_happened(self):
        self.map.write(self.key, session())
        self.map.fails["remove"] = antiphon.Error("unavailable", "no majority", "no")
        self.assertEqual(await self.errors_of(self.sessions.begin("bob", self.sid)), ("unavailable", "maybe"))
        self.assertEqual(sorted(self.there(key)["user"] for key in self.map.all), ["ann", "bob"])

    async def test_a_request_waits_for_the_agent_as_long_as_it_may(self):
        self.has_agent(None)
        self.assertEqual(await self.errors_of(self.sessions.change(self.sid, visit, 0)), ("unavailable", "no"))
        waits = asyncio.create_task(self.sessions.ready(WITHIN))
        await asyncio.sleep(0)
        self.has_agent(self.map)
        self.assertIs(await waits, self.map)

    async def test_an_entry_that_is_no_session_is_named_and_told_to_nobody(self):
        page = self.sessions.open(self.key)
        for version, value in enumerate([b"\xff", b"3", b"null", b"[1]", b'"text"', b"{", b"[" * 200_000]):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.sessions.pass_on(antiphon.Changed(self.key, value, version))
            self.assertIn(f"{self.key} is no session", said.getvalue())
        self.assertTrue(page.empty())
        self.sessions.pass_on(antiphon.Changed(self.key, json.dumps(session()).encode(), 1 << 63))
        self.assertEqual(json.loads(page.get_nowait()), {**session(), "version": str(1 << 63), "server": "a"})

    async def test_a_page_that_takes_nothing_is_closed_and_no_other(self):
        idle, reads = self.sessions.open(self.key), self.sessions.open(self.key)
        for number in range(shop.PAGE_MESSAGES + 1):
            self.sessions.tell(self.key, {"number": number})
            self.assertEqual(json.loads(reads.get_nowait()), {"number": number})
        told = [idle.get_nowait() for _ in range(idle.qsize())]
        self.assertEqual((len(told), told[-1]), (shop.PAGE_MESSAGES + 1, None))
        self.assertEqual(self.sessions.pages, {self.key: {reads}})
        self.sessions.close(self.key, idle)  # when what reads it notices
        self.sessions.close_all()
        self.assertIsNone(reads.get_nowait())
        self.assertEqual(self.sessions.pages, {})

    async def test_an_agent_that_goes_is_connected_to_again_and_nothing_is_served_meanwhile(self):
        page, meanwhile, again = self.sessions.open(self.key), [], asyncio.Event()
        change = antiphon.Changed(self.key, json.dumps(session()).encode(), 7)
        agents = [OSError("nobody is there"), OSError("nobody is there"), FakeAgent([change]), FakeAgent([])]

        async def connect(_):
            meanwhile.append((self.sessions.map, self.sessions.there.is_set()))
            agent = agents.pop(0)
            if isinstance(agent, OSError):
                raise agent
            if not agents:
                again.set()
            return agent
        self.has_agent(None)
        with mock.patch.object(antiphon.aio, "connect", connect), contextlib.redirect_stderr(io.StringIO()) as said:
            keeping = asyncio.create_task(self.sessions.keep())
            await asyncio.wait_for(again.wait(), WITHIN)
            await asyncio.wait_for(self.sessions.there.wait(), WITHIN)
            self.assertIsNotNone(self.sessions.map)
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
        self.assertEqual(json.loads(page.get_nowait())["version"], "7")
        self.assertEqual(meanwhile, [(None, False)] * 4)
        self.assertEqual((self.sessions.map, self.sessions.there.is_set()), (None, False))
        # Not once more for each time that it is tried.
        self.assertEqual([line.count("nobody is there") for line in said.getvalue().splitlines()], [1, 0])


class FakeAgent(FakeMap):
    """A connection to an agent, the map there and its watch. It breaks behind these changes, if there are any."""

    def __init__(self, changes):
        super().__init__()
        self.changes = changes

    def map(self, _):
        return self

    async def watch(self, prefix):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def __aiter__(self):
        for change in self.changes:
            yield change
        if self.changes:
            raise antiphon.ConnectionLost("the agent was killed")
        await asyncio.Event().wait()


class Handlers(ShopTest):
    async def test_a_login_has_a_new_id_and_ends_the_session_before(self):
        self.map.write(self.key, session())
        answer = await shop.login(Request("user=+bob+", self.sid))
        self.assertEqual((answer.status, answer.content["user"], answer.content["visits"]), (200, "bob", 0))
        [(id, seconds)] = answer.cookies.values()
        self.assertEqual(shop.session_id(Request(sid=id)), id)
        self.assertEqual((list(self.map.all), seconds), ([shop.SCOPE + id], 60))
        answer = await shop.login(Request("user=bob", program=False))
        self.assertEqual((answer.content, answer.status, answer.headers["cache-control"]), ("/", 303, "no-store"))

    async def test_a_cookie_that_is_none_of_ours_is_no_session(self):
        for sid in [None, "", self.sid[1:], self.sid + "0", "A" * 32, self.sid[:-1] + "/", self.sid + "\n"]:
            self.assertIsNone(shop.session_id(Request(sid=sid)), sid)
        self.map.write(shop.SCOPE, session())
        for handler in shop.show, shop.events:
            self.assertEqual((await handler(Request(sid=""))).status, 401)
        page = await shop.show(Request(sid=self.sid, program=False))
        self.assertEqual((page.status, page.content), (200, shop.LOGIN))

    async def test_what_is_out_of_bounds_is_refused_and_changes_nothing(self):
        self.map.write(self.key, session(basket=["tea"] * shop.MOST_ITEMS))
        before = dict(self.map.all)
        wrong = ["", "item=", "item=+", "other=tea", "item=%00", "item=a%0Ab", "item=" + "x" * 65, "item=" + "ä" * 33,
                 "item=tea&" + "x" * shop.MOST_REQUEST_BYTES, "item=tea"]  # the last finds the basket full
        for body in wrong:
            answer = await shop.basket(Request(body, self.sid))
            self.assertEqual((answer.status, answer.headers["cache-control"]), (422, "no-store"), body[:80])
        self.assertEqual(self.map.all, before)
        other = "1" * 32
        self.map.write(shop.SCOPE + other, session())
        answer = await shop.basket(Request("item=" + "ä" * 32, other))
        self.assertEqual((answer.status, answer.content["basket"]), (200, ["ä" * 32]))

    async def test_a_server_without_its_agent_says_whether_the_request_may_have_happened(self):
        self.map.write(self.key, session())
        self.map.fails["put"] = antiphon.ConnectionLost("it is gone")
        answer = await shop.basket(Request("item=tea", self.sid))
        self.assertEqual((answer.status, answer.content["ran"], answer.headers),
                         (503, "maybe", {"retry-after": "1", "cache-control": "no-store"}))
        shop.server.should_exit = True
        self.assertEqual((await shop.ready(Request())).status, 503)

    async def test_what_browsers_said_is_shown_as_text(self):
        self.map.write(self.key, session("<b>@SERVER@", basket=["<i>"]))
        page = (await shop.show(Request(sid=self.sid, program=False))).content
        self.assertTrue("&lt;b&gt;@SERVER@" in page and "<li>&lt;i&gt;</li>" in page, page)
        self.assertFalse("<b>@" in page or "<i>" in page, page)

    async def test_a_logout_ends_the_session_and_the_cookie(self):
        self.map.write(self.key, session())
        answer = await shop.logout(Request(sid=self.sid))
        self.assertEqual((answer.status, answer.cookies, self.map.all), (200, {"sid": ("", 0)}, {}))
        self.assertEqual((await shop.show(Request(sid=self.sid))).status, 401)

    async def test_an_open_page_is_told_what_is_there_and_each_change_until_it_is_closed(self):
        self.map.write(self.key, session())
        stream = (await shop.events(Request(sid=self.sid))).content
        told = [await anext(stream)]
        _, version = await self.sessions.change(self.sid, visit, 0)
        self.sessions.pass_on(antiphon.Changed(self.key, self.map.all[self.key][0], version))
        told.append(await anext(stream))
        self.assertTrue(all(text.startswith("data: ") and text.endswith("\n\n") for text in told), told)
        said = [json.loads(text.removeprefix("data: ")) for text in told]
        self.assertEqual([(one["visits"], one["version"]) for one in said], [(0, "1"), (1, str(version))])
        self.sessions.close_all()
        self.assertEqual([text async for text in stream], [])
        self.assertEqual(self.sessions.pages, {})


if __name__ == "__main__":
    unittest.main()
