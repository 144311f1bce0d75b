"""What is kept of a connection, so that another one can go on where it broke: docs/agent.md, "Coming back".

    put ─► unsent ─► next ─► sent ─► took     lines of the program, until the agent says that it took them
                             └── resume ──►   to unsent again, behind those that it has taken
    came                                      lines of the agent are counted, and it is told how many

Nothing here is used by a client without `grace`.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import timedelta
from typing import Any

from .cell import Cell

MOST_GRACE = 10.0  # seconds; the agent gives no more
TRY_EVERY = 0.1  # seconds
KEEP_BYTES = 1 << 20  # with so many there is no room for more
AT_ONCE_BYTES = 64 << 10  # given to the socket together
TELL_LINES, TELL_BYTES = 128, 32 << 10  # half of what the agent allows
MOST_WELCOME_BYTES = 64 << 10


def seconds(grace: float | timedelta | None) -> float:
    found = grace.total_seconds() if isinstance(grace, timedelta) else grace or 0.0
    if not 0 <= found <= MOST_GRACE:
        raise ValueError(f"grace is at most {MOST_GRACE:g} s, and not {found:g} s")
    return found


class Link(Cell):
    """Is changed when there is something to write."""

    def __init__(self, grace: float) -> None:
        super().__init__()
        self.grace = grace
        self.key: str | None = None  # none: there is nothing to come back to
        self.up = True  # there is a connection to write to
        self.begin(0)

    def begin(self, counted: int) -> None:
        """Counting begins, with `counted` lines said and taken."""
        self.unsent: deque[bytes] = deque()
        self.sent: deque[bytes] = deque()  # not known to be taken
        self.kept_bytes = 0
        self.gone = self.given = counted  # lines that the agent took; that any connection was given
        self.taken = self.told = counted  # lines of the agent; what it was told of them
        self.untold_bytes = 0

    def put(self, line: bytes) -> int:
        """Has it written in its turn; the line's number."""
        self.unsent.append(line)
        self.kept_bytes += len(line)
        self.changed()
        return self.gone + len(self.sent) + len(self.unsent)

    def has_room(self) -> bool:
        return self.kept_bytes < KEEP_BYTES

    def has_more(self) -> bool:
        return self.up and (bool(self.unsent) or self._must_tell())

    def next(self) -> bytes:
        """What is to be written now; nothing if there is nothing."""
        if not self.up:
            return b""
        lines, size = [], 0
        if self._must_tell():
            lines.append(b'{"took":{"lines":%d}}\n' % self.taken)
            self.told, self.untold_bytes = self.taken, 0
        while self.unsent and size < AT_ONCE_BYTES:
            line = self.unsent.popleft()
            self.sent.append(line)
            lines.append(line)
            size += len(line)
        self.given = max(self.given, self.gone + len(self.sent))
        return b"".join(lines)

    def came(self, size: int) -> None:
        """A line of the agent was taken."""
        self.taken += 1
        self.untold_bytes += size
        if self._must_tell():
            self.changed()

    def _must_tell(self) -> bool:
        return self.taken - self.told >= TELL_LINES or self.untold_bytes >= TELL_BYTES

    def took(self, lines: int) -> None:
        """The agent has taken so many: they are not needed any more.

        It may say less than before: what `resumed` said was not carried out yet.
        """
        said = self.gone + len(self.sent)
        if lines > said:
            raise ValueError(f"the agent says that it took {lines} lines, of {said}")
        for _ in range(lines - self.gone):
            self.kept_bytes -= len(self.sent.popleft())
        self.gone = max(self.gone, lines)
        self.changed()

    def resume(self, lines: int) -> None:
        """A new connection goes on behind these."""
        if lines < self.gone:
            raise ValueError(f"the agent goes on behind {lines} lines, and took {self.gone} before")
        self.took(lines)
        self.unsent = self.sent + self.unsent
        self.sent = deque()
        self.told, self.untold_bytes = self.taken, 0  # hello said it


def welcomed(text: bytes) -> dict[str, Any]:
    """The reply to the hello of another connection, or the reason why there is none."""
    event = json.loads(text)
    if event["event"] == "reply" and "error" not in event:
        return dict(event["welcome"])
    raise ConnectionError(event.get("reason") or event["error"]["reason"])
