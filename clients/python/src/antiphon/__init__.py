"""A client of the Antiphon agent of this host: groups, locks, leaders, maps, counters, calls, commands to peers.

`antiphon.connect` is for threads, `antiphon.aio.connect` for asyncio; both have the same methods.
"""

from . import aio
from .events import (Answers, Changed, Command, ConnectionLost, Error, GroupEvent, Lost, Members, Message, Node,
                     Refused, Request, Resync, Suspended, Transitional, View, WatchEvent, Watching)
from .sync import Client, Counter, Group, Guard, Leadership, LostEvent, Map, Watch, connect

__all__ = [
    "Answers", "Changed", "Client", "Command", "ConnectionLost", "Counter", "Error", "Group", "GroupEvent", "Guard",
    "Leadership", "Lost", "LostEvent", "Map", "Members", "Message", "Node", "Refused", "Request", "Resync", "Suspended",
    "Transitional", "View", "Watch", "WatchEvent", "Watching", "aio", "connect",
]
