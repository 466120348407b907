"""The floor of a relay: asyncio's streams and json. It gives requests other ids, and does nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from itertools import count

UNBOUNDED = 1 << 30


async def main(*command: str) -> None:
    loop = asyncio.get_running_loop()
    server = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=UNBOUNDED)
    assert server.stdin is not None
    assert server.stdout is not None
    stdin = asyncio.StreamReader(UNBOUNDED)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    stdout = asyncio.StreamWriter(transport, protocol, None, loop)
    ids: dict[int, object] = {}
    numbers = count()

    async def pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while line := await source.readline():
            message = json.loads(line)
            if "method" not in message:
                message["id"] = ids.pop(message["id"])
            elif "id" in message:
                number = next(numbers)
                ids[number], message["id"] = message["id"], number
            to.write(json.dumps(message).encode() + b"\n")
            await to.drain()
        to.close()

    await asyncio.gather(pass_on(stdin, server.stdin), pass_on(server.stdout, stdout))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
