"""Both clients with real agents: tokens and TLS, coming back, commands to peers. They need ANTIPHON_BIN."""

import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]

import antiphon  # noqa: E402
import both  # noqa: E402
from peer import WITHIN  # noqa: E402

BINARY = os.environ.get("ANTIPHON_BIN")
LIST = """
    version = 3
    [[verb]]
    name = "flush"
    from = "all"
    to = "all"
    deliver = "session"
    args.key = { type = "text", max-bytes = 100 }
    args.depth = { type = "integer", min = 0, max = 9, default = 1 }
"""


def listener():
    """At a free port below those that systems give to connections, one of which might take it before the agent."""
    while True:
        try:
            return socket.create_server(("127.0.0.1", random.randrange(12000, 32000)))
        except OSError:
            pass


@unittest.skipUnless(BINARY, "ANTIPHON_BIN is not set")
class Agents:
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def agents(self, names, *flags):
        """A cluster; the addresses of its agents."""
        sockets = [listener() for _ in names]
        binds = {name: "127.0.0.1:%d" % one.getsockname()[1] for name, one in zip(names, sockets)}
        for one in sockets:
            one.close()
        for name, bind in binds.items():
            with (self.folder / f"{name}.json").open("w") as said, (self.folder / f"{name}.log").open("w") as log:
                agent = subprocess.Popen(
                    [BINARY, "agent", "--json", "--console", "none", "--cluster", f"python-{os.getpid()}",
                     "--name", name, "--bind", bind, "--seeds", ",".join(binds.values()), "--listen", "127.0.0.1:0",
                     *flags], stdin=subprocess.DEVNULL, stdout=said, stderr=log)
            self.addCleanup(lambda agent=agent: (agent.kill(), agent.wait()))
        return [self.ready(name, len(names)) for name in names]

    def ready(self, name, count):
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            lines = (self.folder / f"{name}.json").read_text().split("\n")[:-1]
            events = [json.loads(line) for line in lines]
            serving = [event["addrs"][0] for event in events if event["event"] == "serving"]
            if serving and any(event["event"] == "node_view" and len(event["members"]) == count for event in events):
                return serving[0]
            time.sleep(0.02)
        raise AssertionError((self.folder / f"{name}.log").read_text())

    def client(self, *args, **fields):
        client = self.connect(*args, **fields)
        self.addCleanup(client.close)
        return client

    def certificate(self):
        if not shutil.which("openssl"):
            self.skipTest("no openssl")
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                "-keyout", self.folder / "agent.key", "-out", self.folder / "agent.pem"]
        subprocess.run(made, check=True, capture_output=True)
        return ["--tls-cert", self.folder / "agent.pem", "--tls-key", self.folder / "agent.key"]

    def key(self, name):
        subprocess.run([BINARY, "key", self.folder / name], check=True, capture_output=True)
        return self.folder / name

    def test_a_client_with_a_token_comes_back_by_tls_and_nothing_is_lost_or_done_twice(self):
        token = self.key("agent.token")
        (address,) = self.agents(["a"], *self.certificate(), "--token-file", token)
        tls = ssl.create_default_context(cafile=self.folder / "agent.pem")
        with self.assertRaisesRegex(antiphon.ConnectionLost, "token"):
            self.connect(address, tls=tls)
        with self.assertRaisesRegex(antiphon.ConnectionLost, "TLS with .* failed") as untrusted:
            self.connect(address, tls=True, token=token.read_text().strip())
        self.assertIsInstance(untrusted.exception.__cause__, ssl.SSLCertVerificationError)
        client = self.client(address, "ann", tls=tls, token=token.read_text().strip(), grace=10)
        group = client.join("g")
        view = group.next(WITHIN)
        self.assertEqual(view.members, ("a/ann",))
        guard, total = client.lock("till"), 0
        for number in range(240):
            group.send(f"{number} " + "x" * (20_000 if number % 50 == 0 else 10))
            if number % 40 == 20:
                self.cut(client)
            if number % 24 == 0:
                total = client.counter("c").add(1)
        seen = [group.next(WITHIN) for _ in range(240)]
        self.assertEqual([int(event.text.split()[0]) for event in seen], list(range(240)))
        self.assertEqual(total, 10)
        self.assertFalse(guard.lost.is_set())
        guard.unlock()

    def test_peers_are_commanded(self):
        (self.folder / "commands.toml").write_text(LIST)
        one, other = self.agents(["a", "b"], "--key-file", self.key("shop.key"), "--commands",
                                 self.folder / "commands.toml", "--commands-listen", "127.0.0.1:0")
        ann, bob = self.client(one, "ann"), self.client(other, "bob")
        asked = []

        def flush(command):
            asked.append((command.verb, command.sender, command.args))
            if command.args["key"] == "no":
                raise ValueError("not this")
            return f"forgot {command.args['key']}"
        bob.serve_command("flush", self.handler(flush))
        deadline = time.monotonic() + WITHIN  # ways to a peer open when it is heard
        while True:
            try:
                answers = ann.command("flush", {"key": "/tea"}, ["b"], by="udp", within=5)
                break
            except antiphon.Error as error:
                if time.monotonic() > deadline or error.ran != "no":
                    raise
        self.assertEqual(answers.replies, {"b": b"forgot /tea"})
        self.assertEqual(asked[-1], ("flush", "a", {"key": "/tea", "depth": 1}))
        answers = ann.command("flush", {"key": "/", "depth": 3})
        self.assertEqual((answers.replies, answers.failures["a"].ran), ({"b": b"forgot /"}, "no"))
        with self.assertRaises(antiphon.Error) as failed:
            ann.command("flush", {"key": "no"}, ["b"])
        self.assertEqual(failed.exception.failures["b"].payload, b"not this")
        self.assertEqual(ann.command("flush", {"key": "/"}, ["b"], reply=False).failures, {})
        with self.assertRaises(antiphon.Error) as refused:
            ann.command("flush", {"key": "/", "depth": 10})
        self.assertEqual((refused.exception.code, refused.exception.ran), ("refused", "no"))
        self.assertEqual(ann.commands()["list"], 3)


class Threads(Agents, both.Threads, unittest.TestCase):
    pass


class Tasks(Agents, both.Tasks, unittest.TestCase):
    pass


if __name__ == "__main__":
    unittest.main()
