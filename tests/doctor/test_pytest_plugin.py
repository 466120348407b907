"""The pytest plugin, in runs of pytest within these tests."""

from __future__ import annotations

import shlex
import sys

import pytest

pytest_plugins = ["pytester"]

CONFTEST = 'pytest_plugins = ["mcp_host.doctor.pytest_plugin"]\n'
HOST = """
import json, sys
from urllib.request import Request, urlopen

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "check_host",
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
}

def call(**more):
    params = {"name": "check_host", "arguments": {}, "_meta": META, **more}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with urlopen(Request(sys.argv[-1], json.dumps(body).encode(), HEADERS)) as response:
        text = response.read().decode()
    return json.loads(text[text.index("{") :])["result"]

asked = call()
[key] = asked["inputRequests"]
call(inputResponses={key: {"roots": [{"uri": "https://example.com"}]}}, requestState=asked["requestState"])
"""
"""A host of 2026-07-28 that breaks two rules, and a SHOULD: it has no name."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it="def test_own(): pass")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "default", *arguments)


def test_each_rule_is_a_test(pytester: pytest.Pytester) -> None:
    host = pytester.makepyfile(host=HOST)

    done = run(pytester, "--mcp-host-doctor", shlex.join([sys.executable, str(host)]), "-k", "doctor")

    outcomes = done.parseoutcomes()
    assert (outcomes["failed"], outcomes["warnings"]) == (2, 1)
    assert outcomes["passed"] == 4  # the name, with its warning; the state; roots, and their list
    done.stdout.fnmatch_lines(
        [
            "*doctor[[]2026-07-28-new-request-ids[]]*",
            "the retry has the id 1 again",
            "The JSON-RPC `id` MUST be different between the initial request and the retry",
            "https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr#client-requirements-basic-workflow",
        ]
    )
    skipped = done.reprec.getreports("pytest_runtest_logreport")  # type: ignore[attr-defined]  # in process it is there
    reasons = {report.longrepr[2] for report in skipped if report.skipped}
    assert "Skipped: the host did not call the tool in revision 2025-11-25" in reasons
    assert "Skipped: sampling is not declared" in reasons


def test_a_command_that_is_no_host_fails_every_test(pytester: pytest.Pytester) -> None:
    done = run(pytester, "--mcp-host-doctor", shlex.join([sys.executable, "-c", ""]), "-k", "ping or test_own")

    done.assert_outcomes(passed=1, failed=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines(["the host did not call the tool in revision 2025-11-25"])


def test_an_error_of_the_plugin_itself_has_its_traceback(pytester: pytest.Pytester) -> None:
    done = run(pytester, "--mcp-host-doctor", "/no/such/program", "-k", "ping")

    done.stdout.fnmatch_lines(["*No such file or directory: '/no/such/program'"])


def test_without_the_option_there_are_the_own_tests_only(pytester: pytest.Pytester) -> None:
    run(pytester).assert_outcomes(passed=1)
