"""Both shells, with a peer that follows a script."""

import asyncio
import contextlib
import signal
import socket
import sys
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]

import antiphon  # noqa: E402
from peer import VIEW, WITHIN, Peer, message  # noqa: E402


def messages(count):
    return [message(seq, "x" * 1000) for seq in range(count)]


def busy_group(peer):
    peer.reply("join")
    peer.say(VIEW, *messages(1000))
    peer.reply("lock", token=7)
    peer.reply("unlock")
    peer.heard("leave")


def busy_before_the_reply(peer):
    peer.reply("join")
    peer.say(VIEW)
    asked = peer.heard("lock")
    peer.say(*messages(1000), {"event": "reply", "op": "lock", "id": asked["id"], "token": 7})
    peer.reply("unlock")
    peer.heard("leave")


def waiting_lock(peer):
    asked = peer.heard("lock")
    assert peer.heard("cancel") == {"of": asked["id"]}
    peer.say({"event": "reply", "op": "lock", "id": asked["id"], "token": 7})
    assert peer.heard("unlock") == {"name": "till", "token": 7}


def interrupted_lock(peer):
    asked = peer.heard("lock")
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    cancel = peer.heard("cancel")
    assert cancel == {"of": asked["id"]}, cancel
    peer.say({"event": "reply", "op": "lock", "id": asked["id"], "token": 7},
             {"event": "reply", "op": "cancel", "id": None})
    assert peer.heard("unlock") == {"name": "till", "token": 7}


def unread_watch(peer):
    id = peer.reply("watch")["id"]
    changed = {"event": "changed", "map": "m", "id": id, "key": "k", "value": "x" * 1000, "version": 1}
    peer.say(*[changed] * 2048)
    peer.heard("leave")


def ends(peer):
    peer.reply("join")
    peer.say(VIEW)
    peer.heard("lock")


def two_requests(peer):
    peer.reply("serve")
    for number, payload in enumerate(("yes", "fail"), 1):
        peer.say({"event": "request", "group": "g", "request": number, "verb": "v", "from": "b", "payload": payload,
                  "within_ms": 1000})
    assert peer.answered() == {"request": 1, "payload": "YES"}
    assert peer.answered() == {"request": 2, "error": "not this"}


def many_requests(peer):
    requests = [{"event": "request", "group": "g", "request": number, "verb": "v", "from": "b", "payload": "x",
                 "within_ms": 1000} for number in range(1, 4)]
    peer.reply("serve")
    peer.say(*requests[:2])
    for number in (1, 2, 3):
        assert peer.answered() == {"request": number, "error": "its program does not serve it any more"}
        if number == 2:
            peer.say(requests[2])


def reads_no_more(peer):
    peer.reply("join")
    assert peer.stop.wait(WITHIN)


def handler(request):
    if request.payload == b"fail":
        raise ValueError("not this")
    return request.payload.upper()


class Threads(unittest.TestCase):
    def test_an_agent_that_says_nothing_is_not_waited_for(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "127.0.0.1:%d" % silent.getsockname()[1]
            for connect in (antiphon.connect, lambda *at, **more: asyncio.run(antiphon.aio.connect(*at, **more))):
                with self.assertRaisesRegex(antiphon.ConnectionLost, "did not answer within 0.2 s: ") as late:
                    connect(address, timeout=0.2)
                self.assertEqual(late.exception.ran, "no")
                self.assertIsInstance(late.exception.__cause__, (TimeoutError, asyncio.TimeoutError))

    def test_a_thread_that_does_not_read_its_group_still_gets_its_reply(self):
        peer = Peer(busy_group)
        client = antiphon.connect(peer.address, buffer_bytes=10_000)
        group = client.join("g")
        with client.lock("till") as guard:
            self.assertEqual(guard.token, 7)
        self.assertIsInstance(group.next(WITHIN), antiphon.View)
        self.assertEqual([group.next(WITHIN).seq for _ in range(1000)], list(range(1000)))
        client.close()
        peer.end()

    def test_a_group_that_nobody_reads_stops_the_reading(self):
        peer = Peer(busy_before_the_reply)
        client = antiphon.connect(peer.address, buffer_bytes=10_000)
        group = client.join("g")
        self.assertIsInstance(group.next(WITHIN), antiphon.View)
        asked = threading.Thread(target=lambda: client.lock("till").unlock(), daemon=True)
        asked.start()
        with client._lock:
            self.assertTrue(client._until(group._stream, client._core.held_up, WITHIN))
            self.assertLess(len(group._stream.events), 20)
        self.assertTrue(asked.is_alive(), "its reply is behind what is not read")
        for _ in range(1000):
            group.next(WITHIN)
        asked.join(WITHIN)
        self.assertFalse(asked.is_alive())
        client.close()
        peer.end()

    def test_an_end_is_told_to_those_that_iterate_and_those_that_wait(self):
        peer = Peer(ends)
        client = antiphon.connect(peer.address)
        group = client.join("g")
        with self.assertRaises(antiphon.ConnectionLost):
            client.lock("till")
        with self.assertRaises(antiphon.ConnectionLost):
            for event in group:
                self.assertIsInstance(event, antiphon.View)
        client.close()
        peer.end()

    def test_requests_are_answered(self):
        peer = Peer(two_requests)
        client = antiphon.connect(peer.address)
        client.serve("g", "v", handler)
        peer.end()
        client.close()

    def test_a_handler_that_ends_its_thread_leaves_nobody_waiting(self):
        peer = Peer(many_requests)
        client = antiphon.connect(peer.address)
        client.serve("g", "v", lambda request: sys.exit("enough"))
        peer.end()
        client.close()

    def test_an_agent_that_does_not_read_does_not_hold_up_the_end(self):
        before = {*threading.enumerate()}
        peer = Peer(reads_no_more)
        peer.stop = threading.Event()
        self.addCleanup(peer.stop.set)
        client = antiphon.connect(peer.address)
        group, sent = client.join("g"), []

        def fill():
            with contextlib.suppress(antiphon.Error):
                while True:
                    group.send(b"x" * 500_000)
                    sent.append(1)
        filling = threading.Thread(target=fill, daemon=True)
        filling.start()
        count = -1
        while count < len(sent):  # until nothing goes any more
            count = len(sent)
            time.sleep(0.2)
        begun = time.monotonic()
        with mock.patch("antiphon.sync.CLOSE_WITHIN", 0.5):
            client.close()
        self.assertLess(time.monotonic() - begun, 4)
        filling.join(WITHIN)
        self.assertEqual({*threading.enumerate()} - before, {peer.thread})
        peer.stop.set()
        peer.end()

    def test_what_is_granted_to_a_thread_that_was_interrupted_is_given_back_at_once(self):
        # A job in the background may have begun without a handler.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        peer = Peer(interrupted_lock)
        client = antiphon.connect(peer.address)
        with self.assertRaises(KeyboardInterrupt):
            client.lock("till")
        peer.end()
        client.close()

    def test_a_watch_that_nobody_reads_does_not_hold_up_the_end(self):
        before = {*threading.enumerate()}
        peer = Peer(unread_watch)
        client = antiphon.connect(peer.address)
        watch = client.map("m").watch("k")
        with client._lock:
            self.assertTrue(client._until(watch._stream, client._core.held_up, WITHIN))
        begun = time.monotonic()
        client.close()
        self.assertLess(time.monotonic() - begun, 4)
        peer.end()
        left = {thread.name for thread in {*threading.enumerate()} - before}
        self.assertFalse([name for name in left if name.startswith("antiphon")], left)

    def test_a_timeout_takes_nothing_back(self):
        peer = Peer(busy_group)
        client = antiphon.connect(peer.address)
        group = client.join("g")
        for _ in range(1001):
            group.next(WITHIN)
        self.assertRaises(TimeoutError, group.next, 0.01)
        client.lock("till").unlock()
        client.close()
        peer.end()


class Tasks(unittest.IsolatedAsyncioTestCase):
    async def test_a_task_that_does_not_read_its_group_still_gets_its_reply(self):
        peer = Peer(busy_group)
        client = await antiphon.aio.connect(peer.address, buffer_bytes=10_000)
        group = await client.join("g")
        self.assertIsInstance(await group.next(WITHIN), antiphon.View)
        async with await client.lock("till") as guard:
            self.assertEqual(guard.token, 7)
        self.assertEqual([(await group.__anext__()).seq for _ in range(1000)], list(range(1000)))
        await client.close()
        peer.end()

    async def test_a_handler_that_is_cancelled_leaves_nobody_waiting(self):
        async def cancelled(request):
            raise asyncio.CancelledError
        peer = Peer(many_requests)
        client = await antiphon.aio.connect(peer.address)
        await client.serve("g", "v", cancelled)
        await asyncio.to_thread(peer.end)
        await client.close()

    async def test_an_agent_that_does_not_read_does_not_hold_up_the_end(self):
        peer = Peer(reads_no_more)
        peer.stop = threading.Event()
        self.addCleanup(peer.stop.set)
        client = await antiphon.aio.connect(peer.address)
        group = await client.join("g")
        sends = [asyncio.create_task(group.send(b"x" * 500_000)) for _ in range(64)]
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        with mock.patch("antiphon.aio.CLOSE_WITHIN", 0.5):
            await client.close()
        self.assertLess(time.monotonic() - begun, 4)
        await asyncio.wait_for(asyncio.gather(*sends, client._reader, return_exceptions=True), WITHIN)
        peer.stop.set()
        await asyncio.to_thread(peer.end)

    async def test_a_task_that_is_cancelled_gives_back_what_was_granted_meanwhile(self):
        peer = Peer(waiting_lock)
        client = await antiphon.aio.connect(peer.address)
        task = asyncio.create_task(client.lock("till"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(peer.end)
        await client.close()

    async def test_a_watch_that_nobody_reads_does_not_hold_up_the_end(self):
        peer = Peer(unread_watch)
        client = await antiphon.aio.connect(peer.address)
        watch = await client.map("m").watch("k")
        await asyncio.wait_for(client._until(watch._stream, client._core.held_up), WITHIN)
        begun = time.monotonic()
        await client.close()
        self.assertLess(time.monotonic() - begun, 4)
        self.assertTrue(client._reader.done())
        self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})
        await asyncio.to_thread(peer.end)

    async def test_an_end_is_told_to_those_that_iterate_and_those_that_wait(self):
        peer = Peer(ends)
        client = await antiphon.aio.connect(peer.address)
        group = await client.join("g")
        with self.assertRaises(antiphon.ConnectionLost):
            await client.lock("till")
        with self.assertRaises(antiphon.ConnectionLost):
            async for event in group:
                self.assertIsInstance(event, antiphon.View)
        await client.close()
        peer.end()

    async def test_requests_are_answered(self):
        peer = Peer(two_requests)
        client = await antiphon.aio.connect(peer.address)
        await client.serve("g", "v", handler)
        await asyncio.to_thread(peer.end)
        await client.close()


if __name__ == "__main__":
    unittest.main()
