"""Calls of tools that sample, by our client or by that of the official SDK, with the same model of rules."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from anyio import fail_after, to_thread

from mcp_host import Client, Sampling, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.errors import ServerError
from mcp_host.types import CreateMessageResult
from tests.interop.clients.rules import RuleModel
from tests.interop.heard import texts
from tests.interop.processes import Era, sampled_by

IN_TIME = 90.0  # seconds for one connection and its calls, which take three; fastmcp alone is imported in two

Where: TypeAlias = str | list[str]
"""The URL of a server, or the command that starts one."""

Declared: TypeAlias = Literal["tools", "plain", "none"]
"""What the client declares: ``sampling.tools``, ``sampling`` only, or nothing."""

Calls: TypeAlias = Sequence[tuple[str, dict[str, Any]]]


async def call_by_ours(where: Where, era: Era, declared: Declared, calls: Calls) -> dict[str, object]:
    """What comes of each call, and what the model was asked."""
    model = RuleModel()
    with fail_after(IN_TIME):
        async with connected(where, era, sampling_by(model, declared)) as client:
            outcomes = [await _outcome(client, name, arguments) for name, arguments in calls]
    return {"outcomes": outcomes, "asked": model.asked}


def connected(where: Where, era: Era, sampling: Sampling | None) -> Client:
    return Client(StreamableHttp(where) if isinstance(where, str) else Stdio(where), era=era, sampling=sampling)


def sampling_by(model: RuleModel, declared: Declared) -> Sampling | None:
    async def answer(request: SamplingRequest) -> CreateMessageResult:
        return CreateMessageResult.from_wire(model.answer(request.params.to_wire()))

    match declared:
        case "tools":
            return Sampling(with_tools=answer, approve=always)
        case "plain":
            return Sampling(basic=answer, approve=always)
    return None


async def _outcome(client: Client, name: str, arguments: dict[str, Any]) -> object:
    try:
        result = await client.call_tool(name, arguments)
    except ServerError as exc:
        return {"error": [exc.code, exc.message]}
    if result.is_error:
        return {"failed": texts(result)[0]}
    return result.structured_content


async def call_by_official(
    version: int, where: Where, era: Era, declared: Declared, calls: Calls, *, package: str = "sdk"
) -> dict[str, object]:
    """The same, by the client of that *version* of the SDK or of another *package*, as another process."""
    mode = "legacy" if era == "legacy" else "auto"
    command = sampled_by(package, version, where, mode, declared, calls)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=IN_TIME, check=False)

    ended = await to_thread.run_sync(run)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, object] = json.loads(ended.stdout)
    return report
