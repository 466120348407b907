"""What tests of streams that reconnect need."""

from __future__ import annotations

import pytest
from anyio.lowlevel import checkpoint


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before reconnecting, which take no time here."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(round(seconds, 3))
        await checkpoint()

    monkeypatch.setattr("mcp_host.transports._session.sleep", sleep)
    return taken
