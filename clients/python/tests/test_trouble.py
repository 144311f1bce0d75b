"""What goes wrong, in both shells: a peer, a handler or a program that does what nobody expects."""

import asyncio
import json
import socket
import ssl
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]

import antiphon  # noqa: E402
import both  # noqa: E402
from antiphon import address, aio  # noqa: E402
from peer import WITHIN, Peer, message  # noqa: E402
from test_back import in_background, until  # noqa: E402

REQUEST = {"event": "request", "group": "g", "verb": "v", "from": "b", "payload": "?", "within_ms": 1000}
KEPT_ALIVE = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
              (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
              (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6))


def takes_no_answer(peer):
    peer.reply("serve")
    peer.say({**REQUEST, "request": 1})
    peer.reply("answer", error={"code": "refused", "reason": "it is too long", "ran": "no"})
    said = peer.heard("answer")
    assert said == {"request": 1, "error": "it is too long"}, said
    peer.say({**REQUEST, "request": 2})
    peer.reply("answer", error={"code": "not_held", "reason": "its time is over", "ran": "no"})
    peer.reply("add", value=1)


def strange_errors(peer):
    peer.reply("serve")
    for number, error in enumerate(("?" * 1000, "Dumb", "none"), 1):
        peer.say({**REQUEST, "request": number})
        said = peer.answered()
        assert said == {"request": number, "error": error}, said


class Dumb(Exception):
    def __str__(self):
        raise KeyError


def strange(request):
    raise {1: ValueError("\udcff" * 2000), 2: Dumb()}.get(request.number, ValueError("none"))


def garbage(peer):
    peer.reply("lock", token=7)
    peer.raw(b'{"event":"reply"\n')
    peer.over()


def unreadable_reply(peer):
    peer.reply("members")
    peer.over()


def unreadable_facts(peer):
    peer.heard("why")
    peer.say({"event": "why", "node": "b"})
    peer.over()


def not_json_to_it(peer):
    peer.heard("add")
    peer.say({"event": "error", "reason": "not JSON", "request": '{"add":{"counter":"c","by":1e999}}'})
    peer.over()


def says_nothing(peer):
    peer.over()


def no_tls(peer):
    peer.connection.recv(1000)
    peer.say({"event": "error", "reason": "not JSON"})


def ended_watch(peer):
    peer.reply("watch")
    peer.heard("leave")


def full_behind_the_leave(peer):
    """The reader of two groups leaves one of them, and much of the other comes before that has ended."""
    peer.reply("join")
    peer.reply("join")
    peer.reply("leave")
    time.sleep(0.05)  # so that the reply is read alone
    peer.say(*({**message(seq, "x" * 1000), "group": "h"} for seq in range(200)), {"event": "group_left", "group": "g"})
    peer.heard("leave")


def hears_half_a_line(peer):
    peer.reply("lock", token=7)
    peer.reply("join")
    rest = peer.lines.read()
    assert rest.startswith(b'{"send":') and b"\n" not in rest, rest


class Both:
    """For both clients."""

    def client(self, *plays, **more):
        self.peer = Peer(*plays)
        client = self.connect(self.peer.address, **more)
        self.addCleanup(client.close)
        return client

    def test_an_answer_that_the_agent_does_not_take_is_an_error_to_who_asked(self):
        client = self.client(takes_no_answer)
        served = []
        client.serve("g", "v", self.handler(lambda request: served.append(request.number) or "yes"))
        until(lambda: served == [1, 2])
        self.assertEqual(client.counter("c").add(1), 1)
        self.peer.end()

    def test_whatever_a_handler_raises_its_verb_is_served_on(self):
        client = self.client(strange_errors)
        client.serve("g", "v", self.handler(strange))
        self.peer.end()

    def test_a_client_that_gives_up_hangs_up(self):
        client = self.client(garbage)
        guard = client.lock("till")
        self.peer.end()
        until(lambda: guard.lost.is_set())

    def test_what_cannot_be_read_ends_its_operation(self):
        for play, ask in ((unreadable_reply, lambda client: client.members()),
                          (unreadable_facts, lambda client: client.why("b"))):
            client = self.client(play)
            with self.assertRaises(antiphon.ConnectionLost) as lost:
                ask(client)
            self.assertEqual(lost.exception.ran, "maybe")
            self.peer.end()

    def test_a_line_that_is_no_json_to_the_agent_ends_what_waits(self):
        client = self.client(not_json_to_it)
        with self.assertRaisesRegex(antiphon.ConnectionLost, "did not understand a line of this client: not JSON"):
            client.counter("c").add(1)
        self.peer.end()

    def test_what_would_be_no_json_to_the_agent_is_not_said(self):
        client = self.client(says_nothing)
        for say in (lambda: client.command("v", {"x": float("nan")}), lambda: client.command("v", {"x": []}),
                    lambda: client.command("v", {"x": 10**400}), lambda: client.counter("c").add(-(1 << 63) - 1),
                    lambda: client.counter("c").add(float("inf")), lambda: client.take_ids(1 << 64),
                    lambda: client.map("m").put("k", "v", if_version=10**400), lambda: client.lock("a\ud800")):
            with self.assertRaises(antiphon.Error) as refused:
                say()
            self.assertEqual((refused.exception.code, refused.exception.ran), ("refused", "no"))
        self.cut(client)
        self.peer.end()

    def test_a_host_that_goes_without_a_word_is_noticed(self):
        client = self.client(says_nothing)
        for level, name, value in KEPT_ALIVE:
            self.assertEqual(self.socket_of(client).getsockopt(level, name), value)
        self.cut(client)
        self.peer.end()

    def test_where_no_agent_serves_the_error_is_one_of_the_client(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            nobody = "127.0.0.1:%d" % free.getsockname()[1]
        for address, cause in ((nobody, ConnectionRefusedError), ("unix:/nonexistent/agent", FileNotFoundError),
                               ("unix:/" + "x" * 200, OSError), ("a.invalid:7480", socket.gaierror)):
            with self.assertRaisesRegex(antiphon.ConnectionLost, "no agent serves at .*: start one there") as raised:
                self.connect(address)
            self.assertEqual((raised.exception.code, raised.exception.ran), ("connection", "no"))
            self.assertIn(address, raised.exception.reason)
            self.assertIsInstance(raised.exception.__cause__, cause)
        for address in ("7480", "127.0.0.1:x", "127.0.0.1:70000", ":7480"):
            self.assertRaises(ValueError, self.connect, address)

    def test_an_agent_without_tls_is_told_of_as_such(self):
        peer = Peer(no_tls, greet=False)
        with self.assertRaisesRegex(antiphon.ConnectionLost, "TLS with .* failed .*the agent has to speak it") as raised:
            self.connect(peer.address, tls=True)
        self.assertIsInstance(raised.exception.__cause__, ssl.SSLError)
        self.assertEqual(raised.exception.ran, "no")
        peer.end()

    def test_a_unix_socket_whose_queue_is_full_is_tried_again(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = folder + "/agent"
            listener.bind(path)
            listener.listen(0)
            listener.settimeout(WITHIN)
            with address.try_unix(path):
                self.assertIsNone(address.try_unix(path))
                with self.assertRaisesRegex(antiphon.ConnectionLost, "did not answer within 0.1 s"):
                    self.connect("unix:" + path, timeout=0.1)
                came = in_background(lambda: self.connect("unix:" + path, timeout=WITHIN))
                time.sleep(0.05)
                listener.accept()[0].close()
                connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                reply = {"event": "reply", "op": "hello", "id": json.loads(lines.readline())["hello"]["id"]}
                welcome = {"client": "x", "node": "a", "cluster": "shop", "build": "0.1.0"}
                connection.sendall(json.dumps({**reply, "welcome": welcome}).encode() + b"\n")
                client = came()
                self.assertEqual(client.member, "a/x")
            client.close()


class Interrupted:
    """A socket whose long lines are interrupted by a signal, in their middle."""

    def __init__(self, sock):
        self.sock, self.is_half = sock, False

    def __getattr__(self, name):
        return getattr(self.sock, name)

    def send(self, data):
        if self.is_half:
            raise KeyboardInterrupt
        self.is_half = len(data) > 500
        return self.sock.send(data[:500])


class Threads(both.Threads, Both, unittest.TestCase):
    @staticmethod
    def socket_of(client):
        return client._sock

    def test_who_leaves_a_group_reads_on_while_another_is_full(self):
        client = self.client(full_behind_the_leave, buffer_bytes=10_000)

        def leave():
            group, _ = client.join("g"), client.join("h")
            group.leave()
            return "out"
        self.assertEqual(in_background(leave)(), "out")
        client.close()
        self.peer.end()

    def test_a_line_that_a_signal_interrupts_ends_the_connection(self):
        client = self.client(hears_half_a_line)
        guard, group = client.lock("till"), client.join("g")
        client._sock = Interrupted(client._sock)
        with self.assertRaises(KeyboardInterrupt):
            group.send("x" * 5000)
        with self.assertRaisesRegex(antiphon.ConnectionLost, "a line was interrupted"):
            guard.unlock()
        self.assertTrue(guard.lost.is_set())
        self.peer.end()


    def test_who_ends_a_watch_counts_as_waiting(self):
        client, waited = self.client(ended_watch), []
        watch = client.map("m").watch("k")
        with mock.patch.object(client, "_write", lambda line: waited.append(len(client._core.waiting))):
            watch.close()
        self.assertEqual(waited, [1])


class Narrow(asyncio.Transport):
    """A connection that takes so many bytes, until it breaks."""

    def __init__(self, room):
        super().__init__()
        self.room, self.waits, self.reads = room, b"", asyncio.StreamReader()
        self.protocol = asyncio.StreamReaderProtocol(self.reads)
        self.protocol.connection_made(self)
        writer = asyncio.StreamWriter(self, self.protocol, self.reads, asyncio.get_running_loop())
        self.client = aio.Client(self.reads, writer, 1 << 20, None, None)
        self.taken, self.is_full, self.over = b"", False, False

    def write(self, data):
        self.waits += data
        self.take(0)

    def take(self, more):
        self.room += more
        took, self.waits = self.waits[:self.room], self.waits[self.room:]
        self.room -= len(took)
        self.taken += took
        if not self.is_full and self.waits:
            self.is_full = True
            self.protocol.pause_writing()

    def say(self, event):
        self.reads.feed_data(json.dumps(event).encode() + b"\n")

    def is_closing(self):
        return self.over

    def abort(self):
        if not self.over:
            self.over = True
            self.protocol.connection_lost(ConnectionResetError("reset"))


class Tasks(both.Tasks, Both, unittest.TestCase):
    @staticmethod
    def socket_of(client):
        return client._writer.get_extra_info("socket")

    def test_who_leaves_a_group_reads_on_while_another_is_full(self):
        client = self.client(full_behind_the_leave, buffer_bytes=10_000)

        async def leave():  # in the task that joined
            group, _ = await client.of.join("g"), await client.of.join("h")
            await group.leave()
        asyncio.run_coroutine_threadsafe(leave(), self.loop).result(5)
        client.close()
        self.peer.end()

    def test_who_ends_a_watch_counts_as_waiting(self):
        client, waited = self.client(ended_watch), []
        watch = client.map("m").watch("k")

        async def write(line):
            waited.append(len(client._core.waiting))
        with mock.patch.object(client.of, "_write", write):
            watch.close()
        self.assertEqual(waited, [1])

    def test_a_line_that_waits_behind_others_when_the_connection_breaks_may_have_been_said(self):
        async def story(is_answered):
            narrow = Narrow(room=10)
            client = narrow.client
            asked = [asyncio.create_task(client.map("m").put("k", "x" * 100_000)),
                     asyncio.create_task(client.counter("c").add(1)),
                     asyncio.create_task(client.map("m").put("k", "y" * 200_000))]
            await asyncio.sleep(0)
            narrow.take(120_000)
            assert b'{"add":{"counter":"c","by":1,"id":2}}\n' in narrow.taken
            if is_answered:
                narrow.say({"event": "reply", "op": "add", "id": 2, "value": 5})
                await asyncio.sleep(0.01)
            narrow.abort()
            return [getattr(one, "ran", one) for one in await asyncio.gather(*asked, return_exceptions=True)]
        self.assertEqual(asyncio.run(story(False)), ["maybe", "maybe", "maybe"])
        self.assertEqual(asyncio.run(story(True)), ["maybe", 5, "maybe"])


if __name__ == "__main__":
    unittest.main()
