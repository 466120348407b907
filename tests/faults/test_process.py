"""Servers over stdio as processes: they do not start, die, cling to life, or leave descendants."""

from __future__ import annotations

import pytest

from mcp_host import Client, Stdio
from mcp_host.errors import ConnectFailed
from tests.faults.fault import fault


@fault("P01")
async def test_a_command_that_is_not_there_fails_the_connect_with_its_name() -> None:
    with pytest.raises(ConnectFailed, match="no-such-server"):
        await Client(Stdio(["no-such-server"])).connect()
