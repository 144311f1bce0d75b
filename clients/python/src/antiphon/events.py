"""What a client is told, and the errors of what it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union


class Error(Exception):
    """Something was not done. `ran` says whether it happened all the same: "no", "maybe" or "yes"."""

    def __init__(self, code: str, reason: str, ran: str = "no", *, version: int | None = None,
                 payload: bytes | None = None, failures: dict[str, Error] | None = None) -> None:
        super().__init__(f"{code}: {reason}")
        self.code, self.reason, self.ran = code, reason, ran
        self.version = version  # of a conflict: what the key has
        self.payload = payload  # of a handler that failed: what it said
        self.failures = failures or {}  # of a call: why each member gave no answer


class ConnectionLost(Error):
    """The connection to the agent is over. Connect again, as a new client; what this one held is free.

    With `grace` also what was under way when this client came back as a new one: it goes on as that.
    """

    def __init__(self, cause: str, ran: str = "maybe") -> None:
        super().__init__("connection", cause, ran)
        self.cause = cause


@dataclass(frozen=True)
class View:
    """The members of a group, as NODE/CLIENT: messages that follow are delivered among these."""

    group: str
    id: str
    members: tuple[str, ...]
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    crashed: tuple[str, ...] = ()
    causes: dict[str, str] = field(default_factory=dict)
    transitional: tuple[str, ...] = ()
    primary: bool = True


@dataclass(frozen=True)
class Message:
    """Something that a member has sent, in the group's order."""

    group: str
    view: str
    sender: str
    seq: int
    payload: bytes
    safe: bool = False
    part: int = 0  # of a bundle, whose messages have one `seq`

    @property
    def text(self) -> str:
        return self.payload.decode()


@dataclass(frozen=True)
class Transitional:
    """What follows until the group's next view is completed among these members."""

    group: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Suspended:
    """Nothing is delivered and nothing can be sent until there is a majority."""

    group: str


@dataclass(frozen=True)
class Resync:
    """The agent's node was away, or this client, which is a new one now. What it knows of the group may be old."""

    group: str
    cause: str


@dataclass(frozen=True)
class Lost:
    """This client is out of the group, and the iteration ends. It may join again."""

    group: str
    cause: str


@dataclass(frozen=True)
class Refused:
    """A message of this client, sent without `wait`, was not taken. A long payload does not come back."""

    group: str
    reason: str
    payload: bytes | None


GroupEvent = Union[View, Message, Transitional, Suspended, Resync, Lost, Refused]


@dataclass(frozen=True)
class Watching:
    """A watch begins, or begins anew: as many `Changed` follow as there are entries."""

    entries: int


@dataclass(frozen=True)
class Changed:
    """A key's value; None with `gone` ("removed" or "expired") if it has none any more."""

    key: str
    value: bytes | None
    version: int
    gone: str | None = None


WatchEvent = Union[Watching, Changed]


@dataclass(frozen=True)
class Request:
    """What a member of the cluster wants done. `within` are the seconds that it waits."""

    group: str
    verb: str
    sender: str
    payload: bytes
    within: float
    number: int
    times: int = field(default=0, repr=False)  # that the client had come back as a new one


@dataclass(frozen=True)
class Command:
    """What a node wants done, of the list of this one. `within` are the seconds that it waits."""

    verb: str
    sender: str
    args: dict[str, str | int | bool]
    within: float
    number: int
    times: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Answers:
    """What nodes answered to a call or a command, and why the others did not, by their names."""

    replies: dict[str, bytes]
    failures: dict[str, Error]


@dataclass(frozen=True)
class Node:
    name: str
    incarnation: str
    addr: str
    metadata: dict[str, str]


@dataclass(frozen=True)
class Members:
    """The cluster's present view: its nodes, the elder first."""

    id: int | str
    number: int
    primary: bool
    nodes: tuple[Node, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


@dataclass(frozen=True)
class Welcome:
    client: str
    node: str
    cluster: str
    build: str
