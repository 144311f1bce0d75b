"""Where an agent is, and the sockets to it."""

from __future__ import annotations

import socket
import ssl

from .events import ConnectionLost

ASK_AFTER, ASK_EACH, ASKED = 60, 10, 6  # seconds of silence, seconds, times: as the agent asks its clients
TRY_UNIX_EVERY = 0.01  # seconds


def address(text: str) -> tuple[str, int] | str:
    """A host and a port, or the path of a Unix socket."""
    if text.startswith("unix:"):
        return text[5:]
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'an address is "host:port" or "unix:/path", not {text!r}')
    return host.strip("[]"), int(port)


def tls_of(tls: ssl.SSLContext | bool | None, where: tuple[str, int] | str) -> ssl.SSLContext | None:
    if tls and isinstance(where, str):
        raise ValueError("TLS is for TCP addresses: a Unix socket needs none")
    return ssl.create_default_context() if tls is True else tls or None


def not_reached(address: str, error: Exception, timeout: float) -> ConnectionLost:
    """Why there is no connection: to be raised from `error`."""
    if isinstance(error, ssl.SSLError):
        reason = (f"TLS with {address} failed ({error}): the agent has to speak it, and its certificate has to be for "
                  "this host and of an authority that the context trusts")
    elif isinstance(error, OSError) and not (isinstance(error, TimeoutError) and error.errno is None):
        reason = (f"no agent serves at {address} ({error}): start one there, or give the address that it says in its "
                  "line `serving`")
    else:
        reason = f"{address} did not answer within {timeout:g} s: look whether an agent serves there, and is reached"
    return ConnectionLost(reason, "no")


def prepare(sock: socket.socket) -> None:
    """Lines go at once, and a host that goes without a word is noticed within two minutes, as long as nothing
    waits to be sent to it. TCP_USER_TIMEOUT would also end a connection whose agent takes nothing for a while,
    as for a group without a majority."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", ASK_AFTER), ("TCP_KEEPINTVL", ASK_EACH), ("TCP_KEEPCNT", ASKED)):
        if hasattr(socket, name):  # not on each system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def try_unix(path: str) -> socket.socket | None:
    """None: its queue of connections is full. Such a socket does not wait for it."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.connect(path)
        return sock
    except BlockingIOError:
        sock.close()
        return None
    except BaseException:
        sock.close()
        raise
