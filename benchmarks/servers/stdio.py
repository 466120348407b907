"""The stdio server: ``python -S -m benchmarks.servers.stdio TOOLS``. Answers all that it reads at once in one write.

With ``stateless`` after the number of tools it speaks revision 2026-07-28.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from benchmarks.servers.replies import SamplingCalls, answer, encode
from benchmarks.servers.stateless import answer_stateless

CHUNK = 1 << 20
PAUSE = 0.05  # seconds before the result: the TypeScript client drops progress that it reads together with it


def main(tools: int, *, stateless: bool) -> None:
    rest: list[bytes] = []
    calls = None if stateless else SamplingCalls()
    while chunk := os.read(0, CHUNK):
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            lines = [b"".join(rest), *others[:-1]]
            rest = [others[-1]]
            write(b"".join(reply(json.loads(line), tools, calls) for line in lines))


def write(output: bytes) -> None:
    left = memoryview(output)
    while left:
        left = left[os.write(1, left) :]


def reply(message: dict[str, Any], tools: int, calls: SamplingCalls | None) -> bytes:
    """The line that answers *message*, if any. Without *calls* the server is stateless."""
    if "id" not in message:
        return b""
    name = message["params"]["name"] if message.get("method") == "tools/call" else None
    if name == "count":
        send_progress(message["params"])
    if calls is None:
        return answer_stateless(message, tools) + b"\n"
    if "method" not in message:
        return calls.receive(message)[1] + b"\n"
    return (calls.request(message) if name == "ask" else answer(message, tools)) + b"\n"


def send_progress(call: dict[str, Any]) -> None:
    """All the progress of a call at once."""
    token, total = call["_meta"]["progressToken"], call["arguments"]["to"]
    params = ({"progressToken": token, "progress": number, "total": total} for number in range(1, total + 1))
    notifications = ({"jsonrpc": "2.0", "method": "notifications/progress", "params": each} for each in params)
    write(b"".join(encode(notification) + b"\n" for notification in notifications))
    time.sleep(PAUSE)


if __name__ == "__main__":
    main(int(sys.argv[1]), stateless=sys.argv[2:] == ["stateless"])
