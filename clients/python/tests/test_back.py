"""A client whose connection breaks, and that comes back: as the same one, as a new one, or not at all."""

import json
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]

import antiphon  # noqa: E402
import both  # noqa: E402
from peer import VIEW, WITHIN, Peer, message  # noqa: E402


def resumes(peer, lines, resumed):
    """The hello of a client that comes back, of which the agent has taken so many lines."""
    hello = peer.welcome(resume="K", resumed=resumed)
    assert (hello["resume"], hello["lines"], hello["name"]) == ("K", lines, "x"), hello


def until(ready):
    deadline = time.monotonic() + WITHIN
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_background(work):
    done = []

    def run():
        try:
            done.append(work())
        except Exception as error:
            done.append(error)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(WITHIN)
        return done[0]
    return result


class Back:
    """For both clients."""

    def peer(self, *plays):
        self.peers = [*getattr(self, "peers", []), Peer(*plays, greet=False)]
        return self.peers[-1]

    def client(self, peer, grace=5):
        client = self.connect(peer.address, "x", grace=grace)
        self.addCleanup(client.close)
        return client

    def take(self, group, count):
        return [group.next(WITHIN) for _ in range(count)]

    def test_a_line_of_the_agent_that_was_cut_short_comes_once(self):
        def first(peer):
            hello = peer.welcome(resume="K")
            assert hello["grace"] == "5000ms" and "resume" not in hello, hello
            peer.reply("join")
            text = json.dumps(message(2, "y" * 5000)).encode()
            peer.say(VIEW, message(1))
            peer.raw(text[:3000])

        def second(peer):
            resumes(peer, lines=4, resumed=2)
            peer.say({"event": "took", "lines": 1}, message(2, "y" * 5000), message(3))
            peer.reply("add", value=1)
            peer.heard("leave")
        peer = self.peer(first, second)
        client = self.client(peer)
        view, *told = self.take(client.join("g"), 4)
        self.assertIsInstance(view, antiphon.View)
        self.assertEqual([(one.seq, len(one.payload)) for one in told], [(1, 1), (2, 5000), (3, 1)])
        self.assertEqual(client.counter("c").add(1), 1)
        client.close()
        peer.end()

    def test_a_bundle_counts_as_one_line_on_both_sides(self):
        def first(peer):
            peer.welcome(resume="K")
            assert peer.reply("join")["bundles"]
            peer.say(VIEW, {"event": "bundle", "group": "g", "view": "1.1", "sender": "a/x", "seq": 1,
                            "payloads": ["0", {"base64": "/w=="}, ""]})
            assert peer.heard("send_bundle") == {"group": "g", "payloads": ["one", {"base64": "/w=="}, ""]}

        def second(peer):
            resumes(peer, lines=4, resumed=3)
            peer.reply("send_bundle")
            peer.heard("leave")
        peer = self.peer(first, second)
        client = self.client(peer)
        group = client.join("g")
        told = [(one.seq, one.part, one.payload) for one in self.take(group, 4)[1:]]
        self.assertEqual(told, [(1, 0, b"0"), (1, 1, b"\xff"), (1, 2, b"")])
        group.send_bundle(["one", b"\xff", ""])
        group.send_bundle(iter(["two"]), wait=True)
        client.close()
        peer.end()

    def test_a_line_of_the_program_that_was_cut_short_is_said_once(self):
        heard = []

        def take(peer):
            heard.append(peer.heard("send")["payload"][:4])

        def first(peer):
            peer.welcome(resume="K")
            peer.reply("join")
            for _ in range(7):
                take(peer)
            # And in the middle of the next one all is over, with much unread.
            peer.lines.read(50_000)
            peer.reset()

        def second(peer):
            resumes(peer, lines=2, resumed=9)
            for _ in range(3):
                take(peer)
            peer.reset()

        def third(peer):
            resumes(peer, lines=2, resumed=12)
            for _ in range(20):
                take(peer)
            peer.heard("leave")
        peer = self.peer(first, second, third)
        client = self.client(peer)
        group = client.join("g")
        for number in range(30):
            group.send(f"{number:04}" + "x" * 100_000 if number < 10 else f"{number:04}")
        client.close()
        peer.end()
        self.assertEqual(heard, [f"{number:04}" for number in range(30)])

    def test_both_ends_say_what_they_took_and_keep_no_more(self):
        def play(peer):
            peer.welcome(resume="K")
            peer.reply("join")
            peer.say(VIEW, *(message(seq) for seq in range(300)))
            took = 0
            while took <= 303 - 128:
                before, took = took, peer.heard("took")["lines"]
                assert before + 128 <= took <= 303, (before, took)
            self.room.wait(WITHIN)
            for lines in (3, 7, 12):
                while lines > self.heard:
                    peer.heard("send")
                    self.heard += 1
                peer.say({"event": "took", "lines": lines})
            while self.heard < 22:
                peer.heard("send")
                self.heard += 1
            peer.say({"event": "took", "lines": 22})
            peer.heard("leave")
        self.room, self.heard = threading.Event(), 2
        peer = self.peer(play)
        client = self.client(peer)
        group = client.join("g")
        self.take(group, 301)
        sent = []

        def send():
            for number in range(20):
                group.send("x" * 100_000)
                sent.append(number)
        sending = in_background(send)
        link = client._core.link
        until(lambda: not link.has_room())
        self.assertLess(len(sent), 12)
        self.assertLess(link.kept_bytes, 1_200_000)
        self.room.set()
        self.assertIsNone(sending())
        client.close()
        peer.end()

    def test_many_that_say_something_at_once_keep_within_what_the_agent_accepts(self):
        count, at_once = 200, 16  # of these lines in 1 MiB
        begun = []

        def play(peer):
            peer.welcome(resume="K")
            peer.reply("join")
            peer.reply("lock", token=7)
            until(lambda: len(begun) == count)
            for first in range(0, count, at_once):
                asked = [peer.heard("send") for _ in range(min(at_once, count - first))]
                kept = client._core.link.kept_bytes
                assert kept <= (1 << 20) + (70 << 10), f"{kept} bytes are not confirmed"
                if not first:
                    room.wait(WITHIN)
                    peer.reply("unlock")  # which waits for no room
                took = 4 + first + len(asked)
                peer.say({"event": "took", "lines": took},
                         *({"event": "reply", "op": "send", "id": one["id"]} for one in asked if "id" in one))
            peer.heard("leave")
        room = threading.Event()
        peer = self.peer(play)
        client = self.client(peer)
        group = client.join("g")
        guard = client.lock("till")

        def send(number):
            begun.append(number)
            group.send("x" * (64 << 10), wait=number % 2 == 0)
        sending = [in_background(lambda number=number: send(number)) for number in range(count)]
        until(lambda: not client._core.link.has_room())
        unlocked = in_background(guard.unlock)
        room.set()
        self.assertIsNone(unlocked())
        self.assertEqual([result() for result in sending], [None] * count)
        client.close()
        peer.end()

    def test_a_new_client_is_where_the_old_one_was(self):
        def first(peer):
            peer.welcome(resume="K")
            peer.reply("join")
            peer.reply("serve")
            peer.reply("serve_command")
            peer.reply("lock", token=7)
            peer.reply("watch")
            peer.say(VIEW, {"event": "request", "group": "g", "request": 1, "verb": "v", "from": "b", "payload": "old",
                            "within_ms": 1000})
            peer.heard("add")
            asked.wait(WITHIN)

        def taken(peer):  # the agent has not noticed that the old one is gone
            peer.reply("hello", error={"code": "refused", "reason": "another client is called x", "ran": "no"})

        def second(peer):
            hello = peer.welcome(resume="L")
            assert (hello["name"], hello["resume"], hello["lines"]) == ("x", "K", 8), hello
            assert peer.reply("join")["group"] == "g"
            assert peer.reply("serve")["verb"] == "v"
            assert peer.reply("serve_command")["verb"] == "w"
            peer.say({**VIEW, "id": "2.1"},
                     {"event": "request", "group": "g", "request": 1, "verb": "v", "from": "b", "payload": "new",
                      "within_ms": 1000})
            assert peer.answered() == {"request": 1, "payload": "new"}
            answered.set()
            peer.reply("add", value=2)

        def third(peer):
            resumed = peer.welcome(resume="L", resumed=6)  # hello, join, two verbs, an answer, add
            assert (resumed["resume"], resumed["lines"]) == ("L", 7), resumed
            peer.heard("leave")

        asked, answers, answered = threading.Event(), threading.Event(), threading.Event()

        def handler(request):
            if request.payload == b"old":
                asked.set()
                answers.wait(WITHIN)
            return request.payload
        peer = self.peer(first, taken, second, third)
        client = self.client(peer)
        group = client.join("g")
        client.serve("g", "v", self.handler(handler))
        client.serve_command("w", lambda command: b"")
        guard = client.lock("till")
        watch = client.map("m").watch("k")
        under_way = in_background(lambda: client.counter("c").add(1))
        self.assertIsInstance(group.next(WITHIN), antiphon.View)
        resync = group.next(WITHIN)
        self.assertIsInstance(resync, antiphon.Resync)
        self.assertIn("did not know this client any more", resync.cause)
        answers.set()
        self.assertEqual(group.next(WITHIN).id, "2.1")
        error = under_way()
        self.assertEqual((error.code, error.ran), ("connection", "maybe"))
        self.assertTrue(guard.lost.is_set())
        self.assertEqual(guard.lost.cause, resync.cause)
        with self.assertRaises(antiphon.Error) as lost:
            watch.next(WITHIN)
        self.assertEqual((lost.exception.code, lost.exception.reason), ("lost", resync.cause))
        self.assertTrue(answered.wait(WITHIN))
        self.assertEqual(client.counter("c").add(1), 2)
        until(lambda: client._core.link.gone == 6)
        client.close()
        peer.end()

    def test_a_new_client_does_not_insist_on_a_name_that_the_agent_gave(self):
        def first(peer):
            assert "name" not in peer.welcome(resume="K", client="c1")
            away.wait(WITHIN)

        def second(peer):
            hello = peer.welcome(resume="L", client="c2")
            assert "name" not in hello and hello["resume"] == "K", hello
            peer.reply("add", value=1)
            peer.heard("leave")
        away = threading.Event()
        peer = self.peer(first, second)
        client = self.connect(peer.address, grace=5)
        self.addCleanup(client.close)
        self.assertEqual(client.member, "a/c1")
        away.set()
        until(lambda: client.name == "c2")
        self.assertEqual((client.member, client.counter("c").add(1)), ("a/c2", 1))
        client.close()
        peer.end()

    def test_what_was_not_even_said_did_not_happen(self):
        def first(peer):
            peer.welcome(resume="K")
            self.away.wait(WITHIN)

        def second(peer):
            self.back.wait(WITHIN)
            peer.welcome(resume="L")
            peer.heard("leave")
        self.away, self.back = threading.Event(), threading.Event()
        peer = self.peer(first, second)
        client = self.client(peer)
        self.away.set()
        link = client._core.link
        until(lambda: not link.up)
        under_way = in_background(lambda: client.counter("c").add(1))
        until(lambda: link.unsent)
        self.back.set()
        error = under_way()
        self.assertEqual((error.code, error.ran), ("connection", "no"))
        client.close()
        peer.end()

    def test_an_agent_that_is_not_there_in_time_is_lost(self):
        peer = self.peer(lambda peer: (peer.welcome(resume="K"), peer.reply("join")))
        client = self.client(peer, grace=0.3)
        group = client.join("g")
        begun = time.monotonic()
        with self.assertRaises(antiphon.ConnectionLost) as lost:
            group.next(WITHIN)
        self.assertGreater(time.monotonic() - begun, 0.2)
        self.assertIn("not reached again within 0.3 s", lost.exception.cause)
        with self.assertRaises(antiphon.ConnectionLost) as lost:
            client.members()
        self.assertEqual(lost.exception.ran, "no")
        peer.end()

    def test_a_client_that_closes_comes_back_to_leave(self):
        def second(peer):
            until(lambda: client._core.closing)
            resumes(peer, lines=1, resumed=1)
            peer.heard("leave")
        cut = threading.Event()
        peer = self.peer(lambda peer: (peer.welcome(resume="K"), cut.wait(WITHIN)), second)
        client = self.client(peer)
        cut.set()
        until(lambda: not client._core.link.up)
        client.close()
        peer.end()

    def test_a_client_closes_at_once_when_there_is_nothing_to_come_back_to(self):
        peer = self.peer(lambda peer: (peer.welcome(resume="K"), peer.heard("leave")), lambda peer: None)
        client = self.client(peer)
        begun = time.monotonic()
        client.close()
        self.assertLess(time.monotonic() - begun, 4)
        self.assertTrue(peer.thread.is_alive(), "nobody comes again")

    def test_without_grace_nothing_comes_back(self):
        peer = self.peer(lambda peer: peer.welcome())
        client = self.connect(peer.address, "x")
        with self.assertRaises(antiphon.ConnectionLost):
            client.members()
        client.close()
        peer.end()
        self.assertRaises(ValueError, self.connect, peer.address, "x", grace=11)


class Threads(both.Threads, Back, unittest.TestCase):
    def test_a_thread_that_waits_for_room_reads_no_group(self):
        def play(peer):
            peer.welcome(resume="K")
            peer.reply("join")
            peer.heard("send")
            until(lambda: reader in client._core.waiting)
            peer.say(VIEW, *(message(seq) for seq in range(100)), {"event": "took", "lines": 3})
            peer.reply("add", value=1)
            peer.heard("leave")
        reader = threading.get_ident()
        peer = self.peer(play)
        client = self.connect(peer.address, "x", grace=5, buffer_bytes=10_000)
        self.addCleanup(client.close)
        group = client.join("g")
        group.send("x" * (1 << 20))
        self.assertEqual(client.counter("c").add(1), 1)
        self.assertEqual(len(self.take(group, 101)), 101)
        client.close()
        peer.end()


class Tasks(both.Tasks, Back, unittest.TestCase):
    pass


if __name__ == "__main__":
    unittest.main()
