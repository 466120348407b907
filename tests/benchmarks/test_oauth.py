"""The benchmarks of OAuth: the server wants a token, and a burst of calls is behind one refresh."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import pytest

from benchmarks.clients import ours
from benchmarks.clients.drive import Driver
from benchmarks.peers import WITH_OAUTH, WITH_REFRESH, Peer
from benchmarks.scenarios import BEHIND_REFRESH
from benchmarks.workers import http_server
from mcp_host.errors import Unauthorized


@pytest.mark.parametrize("peer", [*WITH_OAUTH, *WITH_REFRESH], ids=lambda peer: peer.name)
def test_a_burst_of_calls_is_measured(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client itself checks the number of token requests."""
    monkeypatch.setattr(sys, "argv", [*peer.worker[2:]])
    [scenario] = BEHIND_REFRESH
    with http_server() as url:
        job = replace(scenario, operations=2, warm_up=1, size=10).job(url)
        spent = asyncio.run(Driver(ours.open, job).run())

    assert scenario.cost(job, spent) > 0


def test_a_client_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ours"])
    [scenario] = BEHIND_REFRESH
    with http_server() as url, pytest.raises(Unauthorized):
        asyncio.run(Driver(ours.open, scenario.job(f"{url}/protected")).run())
