"""What lines are made of."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .events import Error

Duration = float | timedelta
Payload = bytes | str

AGENT_LINE_BYTES = 4 << 20
TEXT_BYTES = 600_000  # a text of control characters has six times as many bytes in JSON, and a line 4 MiB
BUNDLE_TEXT_BYTES = 500_000  # all texts of a bundle: the rest of its 1 MiB may stand beside them as base64


def encode_all(payloads: Sequence[Payload]) -> list[str | dict[str, str]]:
    """Those of a bundle, which is one line: each is a text up to its share."""
    share = max(1, BUNDLE_TEXT_BYTES // len(payloads))
    return [encode(payload, share) for payload in payloads]


def encode(payload: Payload, text_bytes: int = TEXT_BYTES) -> str | dict[str, str]:
    data = payload.encode() if isinstance(payload, str) else bytes(payload)
    try:
        if len(data) <= text_bytes:
            return data.decode()
    except UnicodeDecodeError:
        pass
    return {"base64": base64.b64encode(data).decode()}


def decode(payload: Any) -> bytes:
    return payload.encode() if isinstance(payload, str) else base64.b64decode(payload["base64"])


def span(duration: Duration) -> str:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return f"{math.ceil(seconds * 1000)}ms"


def line(op: str, fields: dict[str, Any]) -> bytes:
    given = {key: value for key, value in fields.items() if value is not None}
    # What is no JSON to the agent is answered without an id, so nobody would know what it was.
    for value in [*given.values(), *given.get("args", {}).values()]:
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise Error("refused", f"{op} has a number of more than 64 bits")
    try:
        text = json.dumps({op: given}, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:  # also of half a surrogate
        raise Error("refused", f"{op} cannot be written: {error}") from None
    if len(text) > AGENT_LINE_BYTES:  # the agent would end the connection
        raise Error("refused", f"{op} has {len(text)} bytes, and the agent takes {AGENT_LINE_BYTES}: make it shorter")
    return text + b"\n"


def failure(of: dict[str, Any], **more: Any) -> Error:
    payload = decode(of["payload"]) if "payload" in of else None
    return Error(of["code"], of["reason"], of["ran"], payload=payload, **more)
