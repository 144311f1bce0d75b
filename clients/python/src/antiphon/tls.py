"""TLS for a connection that one thread reads while others write: OpenSSL does one thing at a time."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
READ_BYTES = 64 << 10


class Tls:
    """As much of a socket as a client uses. No thread holds `_lock` while it waits for the network."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._sock = sock
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host)
        try:
            self._until_there(self._tls.do_handshake)
        finally:  # also the alert that says why not
            sock.sendall(self._goes.read())

    def recv(self, size: int) -> bytes:
        try:
            return self._until_there(lambda: self._tls.read(size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""  # lines have ends of their own, so an end that is not announced takes nothing unseen

    def send(self, data: bytes | memoryview) -> int:
        self.sendall(data)
        return len(data)

    def sendall(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        with self._sending:
            while left:
                with self._lock:
                    left = left[self._tls.write(left):]
                    goes = self._goes.read()
                self._sock.sendall(goes)

    def settimeout(self, timeout: float | None) -> None:
        self._sock.settimeout(timeout)

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()

    def _until_there(self, work: Callable[[], T]) -> T:
        while True:
            with self._lock:
                try:
                    return work()
                except ssl.SSLWantReadError:
                    # The handshake's; what is said later goes with the next line.
                    goes = b"" if self._tls.version() else self._goes.read()
            if goes:
                self._sock.sendall(goes)
            data = self._sock.recv(READ_BYTES)
            with self._lock:
                self._came.write(data) if data else self._came.write_eof()
