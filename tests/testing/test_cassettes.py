"""Cassettes: what is recorded from real servers is replayed without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from anyio import fail_after

from mcp_host import Client, Sampling, Stdio, always
from mcp_host.testing import Cassette
from tests.testing.cassettes.asking import KEY, Asking
from tests.testing.cassettes.provider import Library, Provider

CALCULATOR = Stdio([sys.executable, str(Path(__file__).parents[2] / "examples" / "calculator_server.py")])
NOWHERE = Stdio(["/no/such/program"])


async def solve(
    cassette: Cassette, server: Stdio, url: str, *problems: str, library: Library = "httpx2", era: str = "auto"
) -> list[str]:
    """What the calculator answers to each of the problems."""
    http = cassette.http_client("httpx") if library == "httpx" else cassette.http_client()
    async with http:
        sampling = Sampling(with_tools=Asking(http, url), approve=always)  # type: ignore[arg-type]
        async with Client(cassette.transport(server), sampling=sampling, era=era) as client:
            return [(await client.call_tool("solve", {"problem": problem})).text for problem in problems]


@pytest.mark.parametrize(("library", "era"), [("httpx", "legacy"), ("httpx2", "modern"), ("httpx2", "auto")])
async def test_a_recorded_dialogue_is_replayed_without_the_server_and_the_provider(
    tmp_path: Path, provider: Provider, library: Library, era: str
) -> None:
    path = tmp_path / "solve.json"
    with fail_after(60), Cassette(path) as cassette:
        recorded = await solve(cassette, CALCULATOR, provider.url, "Multiply 3 by 7", library=library, era=era)
    with fail_after(30), Cassette(path, record_mode="none", require_all=True) as cassette:
        replayed = await solve(cassette, NOWHERE, "http://127.0.0.1:9", "Multiply 3 by 7", library=library, era=era)

    assert recorded == replayed == ["21.0"]


async def test_a_dialogue_that_is_recorded_twice_is_the_same_file(tmp_path: Path, provider: Provider) -> None:
    files = []
    for name in ("one.json", "two.json"):
        with fail_after(60), Cassette(tmp_path / name) as cassette:
            await solve(cassette, CALCULATOR, provider.url, "Multiply 3 by 7", "Multiply 4 by 5")
        files.append((tmp_path / name).read_text())
    assert files[0] == files[1]
    assert KEY not in files[0]
