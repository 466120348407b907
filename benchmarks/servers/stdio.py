"""The server over stdio: ``python -S -m benchmarks.servers.stdio TOOLS``. Reads what there is, answers it in one write.

With ``stateless`` after the tools it speaks revision 2026-07-28.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from benchmarks.servers.replies import Questions, answer, encode
from benchmarks.servers.stateless import answer_alone

CHUNK = 1 << 20
PAUSE = (
    0.05  # seconds between the last report and the answer: the TypeScript client drops reports that it reads with one
)


def main(tools: int, *, stateless: bool) -> None:
    rest: list[bytes] = []
    questions = Questions()

    def answered(message: dict[str, Any]) -> bytes:
        return reply_alone(message, tools) if stateless else reply(message, tools, questions)

    while chunk := os.read(0, CHUNK):
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            lines = [b"".join(rest), *others[:-1]]
            rest = [others[-1]]
            write(b"".join(answered(json.loads(line)) for line in lines))


def write(output: bytes) -> None:
    left = memoryview(output)
    while left:
        left = left[os.write(1, left) :]


def reply(message: dict[str, Any], tools: int, questions: Questions) -> bytes:
    if "method" not in message:
        return questions.hear(message)[1] + b"\n"
    if "id" not in message:
        return b""
    name = message["params"]["name"] if message["method"] == "tools/call" else None
    if name == "ask":
        return questions.ask(message) + b"\n"
    if name == "count":
        report(message["params"])
    return answer(message, tools) + b"\n"


def reply_alone(message: dict[str, Any], tools: int) -> bytes:
    if message["method"] == "tools/call" and message["params"]["name"] == "count":
        report(message["params"])
    return answer_alone(message, tools) + b"\n" if "id" in message else b""


def report(call: dict[str, Any]) -> None:
    """All the progress of a call at once."""
    token, total = call["_meta"]["progressToken"], call["arguments"]["to"]
    params = ({"progressToken": token, "progress": number, "total": total} for number in range(1, total + 1))
    notices = ({"jsonrpc": "2.0", "method": "notifications/progress", "params": each} for each in params)
    write(b"".join(encode(notice) + b"\n" for notice in notices))
    time.sleep(PAUSE)


if __name__ == "__main__":
    main(int(sys.argv[1]), stateless=sys.argv[2:] == ["stateless"])
