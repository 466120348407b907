"""A server that imports nothing of ours, and dies where it is told to: a separate program, over stdio or HTTP.

    python lean.py stdio legacy
    python lean.py http modern --port 0 --end kill --at writing --nth 3 --while FILE

It speaks one dialogue: tools, a call with progress, and one that has a model use a tool. Everything that it
reads and writes is counted, and at the *nth* its end comes, for as long as FILE is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, TypeAlias

Wire: TypeAlias = dict[str, Any]

INFO = {"name": "lean", "version": "0"}
OBJECT = {"type": "object"}
TOOLS = [{"name": name, "inputSchema": OBJECT} for name in ("echo", "count", "ask", "wait")]
QUESTION = {"role": "user", "content": {"type": "text", "text": "What is 1 + 1?"}}
ADD = {"name": "add", "inputSchema": OBJECT}


def text(value: str) -> Wire:
    return {"content": [{"type": "text", "text": value}]}


def sum_of(answer: Wire) -> Wire:
    """The model's call of the tool, and what came of it, as the next question."""
    content = answer["content"]
    uses = content if isinstance(content, list) else [content]
    results = [
        {"type": "tool_result", "toolUseId": use["id"], **text("2")} for use in uses if use["type"] == "tool_use"
    ]
    return sampling({"role": "assistant", "content": uses}, {"role": "user", "content": results})


def sampling(*more: Wire) -> Wire:
    return {"messages": [QUESTION, *more], "tools": [ADD], "maxTokens": 100}


class Dialogue:
    """What there is to say to each message, and for which request of the client's it is."""

    def __init__(self, era: str) -> None:
        self._modern = era == "modern"
        self._asked = 0
        self._waiting: dict[str, object] = {}  # our questions: for which call each is

    def hear(self, message: Wire) -> Iterator[tuple[object, Wire]]:
        id = message.get("id")
        match message.get("method"):
            case None:
                yield from self._take_answer(message)
            case "notifications/cancelled":
                cancelled = message["params"]["requestId"]
                self._waiting = {ours: call for ours, call in self._waiting.items() if call != cancelled}
            case "tools/call":
                yield from ((id, said) for said in self._call(id, message["params"]))
            case method if id is not None:
                result = self._result(method)
                refusal = {"code": -32601, "message": "Method not found"}
                yield id, {"id": id, "error": refusal} if result is None else {"id": id, "result": result}

    def _result(self, method: str) -> Wire | None:
        if method == "tools/list":
            return {"tools": TOOLS}
        if method == "server/discover" and self._modern:
            return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": INFO}
        if method == "initialize" and not self._modern:
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
        return None

    def _call(self, id: object, params: Wire) -> Iterator[Wire]:
        match params["name"]:
            case "echo":
                yield {"id": id, "result": text(params["arguments"]["text"])}
            case "count":
                token = params["_meta"]["progressToken"]
                for step in (1, 2):
                    progress = {"progressToken": token, "progress": step, "total": 2}
                    yield {"method": "notifications/progress", "params": progress}
                yield {"id": id, "result": text("counted")}
            case "ask" if self._modern:
                yield {"id": id, "result": self._round(params)}
            case "ask":
                yield self._question(id, sampling())

    def _round(self, params: Wire) -> Wire:
        """One round of a stateless call: the state says how far it has come."""
        state = params.get("requestState")
        if state == "added":
            return text(params["inputResponses"]["q"]["content"]["text"])
        question = sampling() if state is None else sum_of(params["inputResponses"]["q"])
        asked = {"q": {"method": "sampling/createMessage", "params": question}}
        return {
            "resultType": "input_required",
            "inputRequests": asked,
            "requestState": "asked" if state is None else "added",
        }

    def _question(self, call: object, params: Wire) -> Wire:
        self._asked += 1
        self._waiting[ours := f"q{self._asked}"] = call
        return {"id": ours, "method": "sampling/createMessage", "params": params}

    def _take_answer(self, message: Wire) -> Iterator[tuple[object, Wire]]:
        if (call := self._waiting.pop(message["id"], None)) is None:
            return
        if "error" in message:
            yield call, {"id": call, "error": {"code": -32000, "message": "no model"}}
        elif message["result"]["stopReason"] == "toolUse":
            yield call, self._question(call, sum_of(message["result"]))
        else:
            yield call, {"id": call, "result": text(message["result"]["content"]["text"])}


class Fate:
    """When the end comes, and of which kind: SIGKILL, an exit, or a connection that is closed or reset."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._counts = {"reading": 0, "writing": 0, "amid": 0}

    def strikes(self, at: str) -> bool:
        """Count one more of these; whether this is the one."""
        self._counts[at] += 1
        return at == self._options.at and self._counts[at] == self._options.nth and self._due()

    def _due(self) -> bool:
        return self._options.end is not None and (self._options.mortal is None or os.path.exists(self._options.mortal))

    def strike(self, connection: socket.socket | None = None) -> None:
        if self._options.end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._options.end == "exit" or connection is None:
            os._exit(3)
        if self._options.end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        sys.exit()  # which ends this thread


def speak_stdio(dialogue: Dialogue, fate: Fate) -> None:
    reading, writing = sys.stdin.buffer, sys.stdout.buffer
    while True:
        if fate.strikes("reading"):
            fate.strike()
        if not (line := reading.readline()):
            return
        for _, said in dialogue.hear(json.loads(line)):
            raw = json.dumps({"jsonrpc": "2.0", **said}).encode() + b"\n"
            if fate.strikes("writing"):
                fate.strike()
            if fate.strikes("amid"):
                writing.write(raw[: len(raw) // 2])
                writing.flush()
                fate.strike()
            writing.write(raw)
            writing.flush()


class Connection:
    """One connection of an HTTP server that keeps to the bare necessities."""

    def __init__(self, raw: socket.socket, server: Server) -> None:
        self._raw = raw
        self._reading = raw.makefile("rb")
        self._server = server

    def serve(self) -> None:
        try:
            while self._await_request():
                self._answer(*self._read())
        except (OSError, ValueError, KeyError, TypeError):  # gone, or out of its mind: the network may be to blame
            pass
        finally:
            self._reading.close()
            self._raw.close()

    def _await_request(self) -> bool:
        if not self._reading.peek(1):
            return False
        if self._server.fate.strikes("reading"):
            self._server.fate.strike(self._raw)
        return True

    def _read(self) -> tuple[str, bytes]:
        method = self._reading.readline().split()[0].decode()
        size = 0
        while (line := self._reading.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                size = int(line[15:])
        return method, self._reading.read(size)

    def _answer(self, method: str, body: bytes) -> None:
        if method != "POST":
            self._say(head("405 Method Not Allowed" if method == "GET" else "200 OK", "Content-Length: 0"))
            return
        message = json.loads(body)
        if "method" in message and "id" in message:
            self._respond(message["id"], self._server.ask(message))
        else:
            self._say(head("202 Accepted", "Content-Length: 0"))  # first, so that the order of what is said is fixed
            self._server.tell(message)

    def _respond(self, id: object, stream: Iterator[Wire]) -> None:
        first = next(stream)
        if is_response(first, id):
            raw = wire(first)
            self._say(head("200 OK", "Content-Type: application/json", f"Content-Length: {len(raw)}") + raw)
            return
        self._say(head("200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))
        self._say(chunk(first))
        for said in stream:
            self._say(chunk(said))
        self._say(b"0\r\n\r\n")

    def _say(self, raw: bytes) -> None:
        fate = self._server.fate
        if fate.strikes("writing"):
            fate.strike(self._raw)
        if fate.strikes("amid"):
            self._raw.sendall(raw[: len(raw) // 2])
            fate.strike(self._raw)
        self._raw.sendall(raw)


class Server:
    """What the connections have in common: which stream each message belongs on."""

    def __init__(self, dialogue: Dialogue, fate: Fate) -> None:
        self.fate = fate
        self._dialogue = dialogue
        self._lock = threading.Lock()
        self._streams: dict[object, SimpleQueue[Wire]] = {}

    def ask(self, message: Wire) -> Iterator[Wire]:
        """What is said on the stream of one request, to the response."""
        stream = self._streams[message["id"]] = SimpleQueue()
        self.tell(message)
        while True:
            yield (said := stream.get())
            if is_response(said, message["id"]):
                del self._streams[message["id"]]
                return

    def tell(self, message: Wire) -> None:
        with self._lock:
            for call, said in self._dialogue.hear(message):
                if call in self._streams:
                    self._streams[call].put(said)


def speak_http(dialogue: Dialogue, fate: Fate, port: int) -> None:
    server = Server(dialogue, fate)
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    while True:
        raw, _ = listener.accept()
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=Connection(raw, server).serve, daemon=True).start()


def is_response(message: Wire, id: object) -> bool:
    return message.get("id") == id and "method" not in message


def wire(message: Wire) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def head(*lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 " + lines[0], *lines[1:], "", ""]).encode()


def chunk(message: Wire) -> bytes:
    event = b"data: " + wire(message) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("over", choices=["stdio", "http"])
    parser.add_argument("era", choices=["legacy", "modern"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--end", choices=["kill", "exit", "close", "reset"])
    parser.add_argument("--at", choices=["reading", "writing", "amid"])
    parser.add_argument("--nth", type=int)
    parser.add_argument("--while", dest="mortal")
    options = parser.parse_args()
    if options.over == "stdio":
        speak_stdio(Dialogue(options.era), Fate(options))
    else:
        speak_http(Dialogue(options.era), Fate(options), options.port)


if __name__ == "__main__":
    main()
