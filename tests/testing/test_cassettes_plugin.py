"""The pytest plugin, in runs of pytest within these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = 'pytest_plugins = ["mcp_host.testing.pytest_plugin"]\n'
SHOWS_BY_HOOK = """
def pytest_addoption(parser):
    parser.addoption("--record-mode", default=None, choices=["none", "once", "rewrite"])
"""
TEST = """
import pytest
from mcp_host import Client
from mcp_host.testing import Server

server = Server("greeter")

@server.tool
def greet(name: str) -> str:
    return f"Hello {name}!"

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_greeting(cassette):
    async with Client(cassette.transport(server)) as client:
        assert (await client.call_tool("greet", {"name": "NAME"})).text == "Hello NAME!"
"""
CASSETTE = Path("cassettes") / "test_it" / "test_greeting.json"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.syspathinsert()
    pytester.makeconftest(CONFTEST)
    write_test(pytester, "Ada")
    return pytester


def write_test(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyfile(test_it=TEST.replace("NAME", name))


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A run in this process, without the plugins that are installed beside, but anyio's."""
    return pytester.runpytest_inprocess("-p", "anyio", "-p", "no:cacheprovider", *arguments)


def test_the_fixture_records_beside_the_module_and_replays_by_default(folder: pytest.Pytester) -> None:
    recorded = run(folder, "--record-mode=once")
    source = folder.path / "test_it.py"
    source.write_text(source.read_text().replace('return f"Hello {name}!"', 'raise RuntimeError("not in a replay")'))
    replayed = run(folder)

    recorded.assert_outcomes(passed=1)
    replayed.assert_outcomes(passed=1)
    assert (folder.path / CASSETTE).exists()


def test_without_a_cassette_the_error_says_how_to_record_it(folder: pytest.Pytester) -> None:
    done = run(folder)

    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(
        ["*CassetteError: there is no *test_greeting.json; to record it, use *--record-mode=once*"]
    )


def test_a_changed_request_fails_the_test_itself_with_the_difference(folder: pytest.Pytester) -> None:
    run(folder, "--record-mode=once")
    write_test(folder, "Grace")
    done = run(folder)

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(['*-*"arguments": {"name": "Ada"}*', '*+*"arguments": {"name": "Grace"}*'])


def test_a_test_that_fails_saves_nothing(folder: pytest.Pytester) -> None:
    source = folder.path / "test_it.py"
    source.write_text(source.read_text().replace("Hello Ada!", "Good bye"))
    done = run(folder, "--record-mode=all")

    done.assert_outcomes(failed=1)
    assert not (folder.path / CASSETTE).exists()


def test_a_test_that_is_not_run_saves_nothing(folder: pytest.Pytester) -> None:
    source = folder.path / "test_it.py"
    broken = "\n@pytest.fixture\ndef broken(cassette):\n    raise OSError\n"
    source.write_text(
        source.read_text()
        .replace("\n@pytest.mark", f"{broken}\n@pytest.mark")
        .replace("(cassette):\n    async", "(broken, cassette):\n    async")
    )
    done = run(folder, "--record-mode=all")

    done.assert_outcomes(errors=1)
    assert not (folder.path / CASSETTE).exists()


def test_the_options_come_from_a_fixture_of_the_user(folder: pytest.Pytester) -> None:
    options = "import pytest\n@pytest.fixture\ndef cassette_options():\n    return {'record_mode': 'once', 'redact': ['Ada']}\n"
    folder.makeconftest(CONFTEST + options)
    done = run(folder)

    done.assert_outcomes(passed=1)
    assert "Hello <redacted>!" in (folder.path / CASSETTE).read_text()


def test_an_option_of_this_name_that_another_plugin_has_serves_both(folder: pytest.Pytester) -> None:
    folder.makepyfile(other_plugin=SHOWS_BY_HOOK)
    recorded = run(folder, "-p", "other_plugin", "--record-mode=rewrite")
    replayed = run(folder, "-p", "other_plugin")

    recorded.assert_outcomes(passed=1)
    replayed.assert_outcomes(passed=1)


def test_the_plugin_does_not_stand_in_the_way_of_the_option_of_pytest_recording(folder: pytest.Pytester) -> None:
    """Loaded first, it leaves the option to pytest-recording, which would fail otherwise."""
    folder.makepyfile(pytest_recording=SHOWS_BY_HOOK)
    recorded = run(folder, "-p", "mcp_host.testing.pytest_plugin", "-p", "pytest_recording", "--record-mode=once")

    recorded.assert_outcomes(passed=1)


def test_the_plugin_has_the_option_where_pytest_recording_is_installed_but_turned_off(folder: pytest.Pytester) -> None:
    folder.makepyfile(pytest_recording="")
    recorded = run(folder, "-p", "no:recording", "--record-mode=once")

    recorded.assert_outcomes(passed=1)
