"""A hundred browsers, and what each of them knows: so that a lost or stale session is found at the first answer.

An answer shows the visits and the basket of a session. They only grow, and all changes of a session are in one order.
So what was shown by an answer is the beginning of what is shown by each answer to a later request:

    lost     the session is not known any more (401)
    stale    an answer shows less than an answer that was there before its request was sent; or less than the
             request itself did; or a session that was ended
    twice    an item is there twice, or more visits than there were requests
    untold   an open page has not heard of the last change

A request that failed may have been carried out, then or later: an item of it may be there or not. Once it was shown, it
stays.
"""

import asyncio
import bisect
import json
import random
import time
from urllib.parse import urlencode

ANSWER_WITHIN = 20.0  # seconds; then the request has failed
HEARD_WITHIN = 5.0  # seconds, by an open page
LISTENS_AGAIN = 2.0  # seconds, after an answer that is no stream: as shop.html says
IDLE = 20.0  # seconds, after which a connection is not used again: nginx may be about to close it
MOST_TRIED = 3  # servers that nginx gives a GET to
MOST_ITEMS = 60  # then the browser logs out
MOST_FINDINGS, MOST_LETTERS = 20, 300  # that are kept


class Failed(Exception):
    """No answer, or 5xx: what was asked for may have happened."""

    def __init__(self, reason, ran="maybe"):
        super().__init__(reason)
        self.ran = ran


class Tally:
    """What all browsers counted."""

    def __init__(self):
        self.lost = self.stale = self.twice = self.untold = 0
        self.requests = self.again = self.logins = self.logouts = self.told = 0
        self.failed = {"GET": 0, "POST": 0}
        self.findings, self.reasons = [], {}
        self.answers = []  # (when it came, how long it took), of all requests that were answered
        self.ends = []  # (when a request began, when it ended, whether it was answered)

    def find(self, kind, text):
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(f"{kind}: {text}"[:MOST_LETTERS])

    def latency_ms(self, quantile):
        taken = sorted(took for _, took in self.answers)
        return round(1000 * taken[min(len(taken) - 1, int(quantile * len(taken)))], 1) if taken else None

    def felt(self, at, within=3.0):
        """How a kill is felt: the longest time without any answer, the slowest answer, and how many failed."""
        times = [when for when, _ in self.answers]
        first, last = bisect.bisect_left(times, at), bisect.bisect_left(times, at + within)
        around = [at, *times[first:last]]
        gap = max((b - a for a, b in zip(around, around[1:])), default=within)
        # Of requests that were under way when the server was killed, or were sent within a second after it.
        near = [(begun, ended, good) for begun, ended, good in self.ends if begun < at + 1 and ended > at]
        return {"gap_ms": round(1000 * gap, 1),
                "slowest_ms": round(1000 * max((ended - begun for begun, ended, good in near if good), default=0), 1),
                "failed": sum(not good for *_, good in near)}


class Connection:
    """HTTP/1.1 to nginx, one request after the other."""

    def __init__(self, port):
        self.port, self.writer, self.used = port, None, 0.0

    async def request(self, method, path, cookie=None, form=None):
        """Status, headers and body."""
        try:
            return await asyncio.wait_for(self._request(method, path, cookie, form), ANSWER_WITHIN)
        except (OSError, EOFError, asyncio.TimeoutError, ValueError) as error:
            self.close()
            raise Failed(f"no answer: {type(error).__name__}") from None

    async def _request(self, method, path, cookie, form):
        if time.monotonic() - self.used > IDLE:
            self.close()
        self.used = time.monotonic()
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        await self.send(method, path, cookie, form, "application/json")
        status, headers = await self.head()
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return status, headers, body

    async def send(self, method, path, cookie, form, accept):
        body = urlencode(form or {}).encode()
        head = [f"{method} {path} HTTP/1.1", "host: shop", f"accept: {accept}"]
        if cookie:
            head.append(f"cookie: sid={cookie}")
        if method == "POST":
            head += ["content-type: application/x-www-form-urlencoded", f"content-length: {len(body)}"]
        self.writer.write("\r\n".join([*head, "", ""]).encode() + body)
        await self.writer.drain()

    async def head(self):
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(lines[0].split()[1]), headers

    def close(self):
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class Page:
    """An open page, which is told of its session: it is to hear of the last change that was answered."""

    def __init__(self, port, session):
        self.session, self.version = session, 0
        self.connection = Connection(port)
        self.task = asyncio.create_task(self._read())

    async def _read(self):
        while not self.session.over:
            wait = 0.2  # as a browser does after a stream, and waits a little longer
            try:
                if await self._stream() != 200:
                    wait = LISTENS_AGAIN
            except (OSError, EOFError, asyncio.TimeoutError, ValueError):
                pass
            self.connection.close()
            await asyncio.sleep(wait)

    async def _stream(self):
        """Reads until the stream ends; the status."""
        connection = self.connection
        connection.reader, connection.writer = await asyncio.open_connection("127.0.0.1", connection.port)
        await connection.send("GET", "/events", self.session.id, None, "text/event-stream")
        status, _ = await asyncio.wait_for(connection.head(), ANSWER_WITHIN)
        while status == 200:
            line = await connection.reader.readline()
            # In chunks, each with its length on a line before it: 0 for the end. The others are passed over.
            if line in (b"", b"0\r\n"):
                break
            if line.startswith(b"data: "):
                said = json.loads(line[6:])
                self.version = max(self.version, int(said["version"]))
                self.session.tally.told += 1
        return status

    async def hears(self):
        """Whether it hears of the last change that the browser knows of, in time."""
        until = time.monotonic() + HEARD_WITHIN
        while self.version < self.session.version and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return self.version >= self.session.version

    def close(self):
        self.task.cancel()
        self.connection.close()


class Session:
    """What a browser knows of its session."""

    def __init__(self, tally, id, user):
        self.tally, self.id, self.user = tally, id, user
        self.visits = 0  # that an answer has shown
        self.possible = 0  # visits that may have been counted at most
        self.basket = []  # that an answer has shown
        self.asked_for = set()  # items that were sent
        self.never = set()  # items of requests of which a server said that nothing happened
        self.version = 0
        self.over = False

    def check(self, said, visits, basket, own, request):
        """An answer; `visits`, `basket`: what had been shown when its request was sent; `own`: what it put in."""
        find, who = self.tally.find, f"{self.user} at {said['server']}, {request}"
        if said["user"] != self.user:
            find("lost", f"{who}: this is the session of {said['user']}")
        if said["visits"] < visits + (own is None):
            find("stale", f"{who}: {said['visits']} visits, after {visits} were shown")
        if said["visits"] > self.possible:
            find("twice", f"{who}: {said['visits']} visits, of {self.possible} requests at most")
        came = said["basket"]
        if came[:len(basket)] != basket:
            find("stale", f"{who}: the basket does not begin with the {len(basket)} items that were shown: {came}")
        if own is not None and own not in came:
            find("stale", f"{who}: {own} was put in, and is not there: {came}")
        if len(set(came)) < len(came):
            find("twice", f"{who}: an item is there twice: {came}")
        if strange := set(came) - self.asked_for | set(came) & self.never:
            find("twice", f"{who}: {strange} were never put in")
        self.visits = max(self.visits, said["visits"])
        self.basket = max(self.basket, came, key=len)
        self.version = max(self.version, int(said["version"]))


class Browser:
    """Logs in, visits, fills a basket, logs out; sometimes with two requests at once, as browsers do."""

    def __init__(self, number, port, tally, think, has_page, seed):
        self.user, self.port, self.tally = f"browser-{number}", port, tally
        self.think, self.has_page = think, has_page
        self.random = random.Random(seed)
        self.connections = [Connection(port), Connection(port)]
        self.session = self.page = None
        self.items = 0

    async def run(self, stop):
        await asyncio.sleep(self.random.random() * self.think)
        while not stop.is_set():
            await self.step()
            await asyncio.sleep(self.random.uniform(0.5, 1.5) * self.think)

    async def step(self):
        first, second = self.connections
        if self.session is None:
            await self.login(first)
        elif len(self.session.basket) >= MOST_ITEMS:
            await self.logout(first)
        elif self.random.random() < 0.1:
            await asyncio.gather(self.visit(first), self.put(second))
        elif self.random.random() < 0.5:
            await self.visit(first)
        else:
            await self.put(first)

    async def login(self, connection):
        try:
            status, headers, _ = await self.ask(connection, "POST", "/login", form={"user": self.user})
        except Failed:
            return
        if status != 200:
            return self.tally.find("lost", f"{self.user}: the login is answered with {status}")
        self.session = Session(self.tally, headers["set-cookie"].split(";")[0].removeprefix("sid="), self.user)
        self.tally.logins += 1
        if self.has_page:
            self.page = Page(self.port, self.session)

    async def visit(self, connection):
        session = self.session
        visits, basket = session.visits, session.basket
        session.possible += MOST_TRIED
        try:
            answer = await self.ask(connection, "GET", "/", session.id)
        except Failed:
            return
        session.possible -= MOST_TRIED - len(answer[1].get("x-tried", "").split(","))
        self.shown(session, answer, visits, basket, None, "visit")

    async def put(self, connection):
        session = self.session
        visits, basket = session.visits, session.basket
        self.items += 1
        item = f"item-{self.items}"
        session.asked_for.add(item)
        try:
            answer = await self.ask(connection, "POST", "/basket", session.id, {"item": item})
        except Failed as failed:
            if failed.ran == "no":
                session.never.add(item)
            return
        self.shown(session, answer, visits, basket, item, "put")

    async def logout(self, connection):
        session, self.session = self.session, None
        self.close_page()
        session.over = True
        try:
            await self.ask(connection, "POST", "/logout", session.id)
            self.tally.logouts += 1
            # At another server, most likely.
            status, *_ = await self.ask(connection, "GET", "/", session.id)
        except Failed:
            return
        if status != 401:
            self.tally.find("stale", f"{self.user}: its session was ended, and answers with {status}")

    def shown(self, session, answer, visits, basket, own, request):
        status, headers, body = answer
        if status == 200:
            return session.check(json.loads(body), visits, basket, own, request)
        at = headers.get("x-tried")
        self.tally.find("lost", f"{self.user} at {at}, {request}: {status} {body[:200].decode(errors='replace')}")
        session.over, self.session = True, None  # it logs in again
        self.close_page()

    def close_page(self):
        if self.page:
            self.page.close()
            self.page = None

    async def last_look(self):
        """When no server is killed any more: the session is there, and the page hears of this visit."""
        if self.session:
            await self.visit(self.connections[0])
        if self.page and not await self.page.hears():
            self.tally.find("untold", f"{self.user}: its page has heard of version {self.page.version} only, not of "
                                      f"{self.page.session.version}")
        self.close_page()
        for connection in self.connections:
            connection.close()

    async def ask(self, connection, method, path, cookie=None, form=None):
        tally, begun = self.tally, time.monotonic()
        tally.requests += 1
        try:
            status, headers, body = await connection.request(method, path, cookie, form)
            if status >= 500:
                said = json.loads(body) if body.startswith(b"{") else {}
                raise Failed(f"{status} {said.get('error', '')}", said.get("ran", "maybe"))
        except Failed as failed:
            tally.ends.append((begun, time.monotonic(), False))
            tally.failed[method] += 1
            reason = f"{method} {path}: {failed}"
            tally.reasons[reason] = tally.reasons.get(reason, 0) + 1
            raise
        ended = time.monotonic()
        tally.ends.append((begun, ended, True))
        tally.answers.append((ended, ended - begun))
        tally.again += "," in headers.get("x-tried", "")
        return status, headers, body
