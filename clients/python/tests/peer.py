"""A peer that follows a script, as the agent of a client."""

import contextlib
import json
import socket
import struct
import threading

WITHIN = 60
VIEW = {"event": "view", "group": "g", "id": "1.1", "members": ["a/x"], "joined": ["a/x"], "left": [], "crashed": [],
        "transitional": [], "primary": True}


def message(seq, payload="x"):
    return {"event": "message", "group": "g", "view": "1.1", "sender": "a/x", "seq": seq, "payload": payload}


class Peer:
    """Takes a connection for each of `plays`, and calls it. `greet` has it answer the first hello itself."""

    def __init__(self, *plays, greet=True, tls=None):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WITHIN)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.failed, self.greet, self.tls = None, greet, tls
        self.thread = threading.Thread(target=self.run, args=(plays,), daemon=True)
        self.thread.start()

    def run(self, plays):
        with self.listener:
            for play in plays:
                try:
                    connection, _ = self.listener.accept()
                except TimeoutError as error:
                    self.failed = error
                    return
                connection.settimeout(WITHIN)
                if self.tls:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                self.lines, self.connection = connection.makefile("rb"), connection
                with connection, self.lines, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    try:
                        if self.greet and play is plays[0]:
                            self.welcome()
                        play(self)
                    except (AssertionError, TimeoutError) as error:
                        self.failed = error
                        return

    def welcome(self, **more):
        welcome = {"client": "x", "node": "a", "cluster": "shop", "build": "0.1.0", **more}
        return self.reply("hello", welcome=welcome)

    def heard(self, op):
        line = self.lines.readline()
        assert line, f"expected {op}, came the end"
        line = json.loads(line)
        assert list(line) == [op], f"expected {op}, came {line}"
        return line[op]

    def answered(self):
        """What is answered; one that is not an error has an id, so that the client hears if it is not taken."""
        said = self.heard("answer")
        assert ("error" in said) != ("id" in said), said
        return {key: value for key, value in said.items() if key != "id"}

    def over(self):
        line = self.lines.readline()
        assert not line, f"expected the end, came {line}"

    def say(self, *events):
        self.raw(b"".join(json.dumps(event).encode() + b"\n" for event in events))

    def raw(self, data):
        self.connection.sendall(data)

    def reply(self, op, **fields):
        asked = self.heard(op)
        self.say({"event": "reply", "op": op, "id": asked["id"], **fields})
        return asked

    def reset(self):
        """Ends the connection as a host that is gone does: at once, whatever is unread."""
        self.lines.close()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def end(self):
        self.thread.join(WITHIN)
        assert not self.thread.is_alive()
        if self.failed:
            raise self.failed
