"""`mcp-host doctor` under a host that starts it, and with the command of a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from anyio import fail_after

from mcp_host import Client, Stdio
from tests.cli.bounded import IN_TIME
from tests.cli.conftest import Run

HOST = """
import sys, anyio
from mcp_host import Client, Elicitation

def decline(request):
    return request.decline()

async def main(url):
    async with Client(url, roots=["file:///home"], elicitation=Elicitation(form=decline)) as client:
        await client.call_tool("check_host")

anyio.run(main, sys.argv[-1])
"""


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_host_that_starts_it_gets_the_report_and_so_does_the_file(era: str, tmp_path: Path) -> None:
    stderr: list[str] = []
    command = [sys.executable, "-m", "mcp_host", "doctor", "--report", str(tmp_path / "report.json")]
    transport = Stdio(command, env=os.environ, on_stderr=stderr.append)  # coverage needs a part of it
    with fail_after(IN_TIME):
        async with Client(transport, era=era, roots=["file:///home"]) as client:
            result = await client.call_tool("check_host")
            revision = client.protocol_version

    assert result.structured_content == {"complete": True, "remaining": 0}
    [host] = json.loads((tmp_path / "report.json").read_text())["hosts"]
    assert host["revision"] == revision
    assert host["counts"]["failed"] == 0
    assert "\n".join(stderr).strip() == result.text.strip()


def test_the_command_of_a_host_gets_a_url_of_each_era_until_nothing_remains(run: Run) -> None:
    done = run("doctor", "--json", "-e", "ANY=1", "--", sys.executable, "-c", HOST)

    assert (done.code, done.err) == (0, "")
    hosts = json.loads(done.out)["hosts"]
    assert [(host["revision"], host["complete"]) for host in hosts] == [("2026-07-28", True), ("2025-11-25", True)]


def test_a_command_that_never_calls_the_tool_is_no_host(run: Run) -> None:
    done = run("doctor", "--era", "legacy", "--", sys.executable, "-c", "")

    assert (done.code, done.out) == (3, "")
    assert done.err == "mcp-host: the host did not call check_host in revision 2025-11-25\n"


def test_without_a_host_on_stdin_nothing_is_checked() -> None:
    command = [sys.executable, "-m", "mcp_host", "doctor"]
    done = subprocess.run(
        command, env=os.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=IN_TIME, check=False
    )

    assert (done.returncode, done.stdout) == (3, "")
    assert "the host did not call check_host in revision 2026-07-28\n" in done.stderr


def test_what_prevents_a_check_up_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    assert run("doctor", "--report", str(tmp_path), "--", "true").code == 2
    done = run("doctor", "--", "/no/such/program")
    assert done.code == 2
    assert "No such file or directory: '/no/such/program'" in done.err
