"""``--config``: the servers of a file, used by the command as if they were one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event

import anyio
import pytest
from anyio import to_thread
from anyio import wait_all_tasks_blocked as settled

from mcp_host.auth import MemoryTokens
from mcp_host.cli.arguments import parse
from mcp_host.cli.console import Console
from mcp_host.cli.group import _check_ready, _Verbose
from mcp_host.cli.inputs import KeyringAnswers
from mcp_host.cli.output import ExitCode, UsageError
from mcp_host.cli.transcript import about
from mcp_host.group import ClientGroup, ServerState, ServerStatus
from mcp_host.sampling import ToolCall
from mcp_host.testing import Context, Server
from tests.asgi import serving_mcp
from tests.auth.authorization_server import Protected
from tests.auth.world import site
from tests.cli import desk, everything
from tests.cli.bounded import IN_TIME, ctrl_c
from tests.cli.browsers import Browser, browser
from tests.cli.conftest import Run
from tests.cli.models import WITH_MODEL, Provider, conversation, says, stalls
from tests.cli.terminals import ROOT, Sitting
from tests.cli.test_command import UNKNOWN, scripted
from tests.group.files import written
from tests.terminal.screens import Screen

__all__ = ["browser", "site"]

PROMPT, TOOL, START = "> ", "May your client call it? [y/s/v/N] ", "Start this server? [y/N] "
CTRL_D = "\x04"
PROGRAM = {
    "command": sys.executable,
    "args": ["-c", "from tests.cli.desk import server; server.run_stdio()"],
    "env": {"PYTHONPATH": str(ROOT)},
}
DEAD = {"command": "/no/such"}
IS_DOWN = "the server 'dead' is down: cannot start '/no/such': [Errno 2] No such file or directory: '/no/such'"
AGREE = "--approve-servers"
PATIENT = (AGREE, "--timeout", "60")  # for a conversation that begins with all servers, however busy the machine is


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, dict[str, str]]]:
    """Two servers, as a file has them."""
    with serving_mcp(desk.server) as shop, serving_mcp(everything.server) as all_kinds:
        yield {"shop": {"url": shop}, "all": {"url": all_kinds}}


Config = Callable[..., str]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """`config(name=server)` is the path of a file with these servers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def config(servers: dict[str, object], **more: object) -> str:
        return str(written(tmp_path / "servers.json", servers, **more))

    return config


def test_tools_lists_those_of_all_servers_and_names_one_that_is_down(
    urls: dict[str, object], config: Config, run: Run
) -> None:
    file = config({**urls, "dead": DEAD, "off": {**DEAD, "disabled": True}})

    code, out, err = run("tools", "--config", file, AGREE)

    assert (code, err) == (0, f"mcp-host: {IS_DOWN}\n")
    names = re.findall(r"^\w+", out, re.MULTILINE)
    assert names[:3] == ["shop__add", "shop__count", "shop__die"]
    assert "all__work" in names


def test_call_starts_only_the_server_of_the_tool(urls: dict[str, object], config: Config, run: Run) -> None:
    file = config({**urls, "dead": DEAD})

    assert run("call", "--config", file, AGREE, "shop__add", "a=1", "b=2") == (0, "3\n", "")
    code, out, err = run("call", "--config", file, AGREE, "shop__ad")
    assert (code, out, err) == (2, "", "mcp-host: the server has no tool 'shop__ad'; did you mean 'shop__add'?\n")


def test_verbose_shows_what_each_server_logs_and_its_stderr_with_its_name_before_each_line(
    config: Config, run: Run
) -> None:
    program = (
        r"import sys; sys.stderr.write('good | info: log in\x1b[2J\n');"
        " from tests.cli.desk import server; server.run_stdio()"
    )
    noisy = {**PROGRAM, "args": ["-c", program]}

    code, out, err = run("call", "--config", config({"evil": noisy}), AGREE, "--verbose", "evil__count")

    assert (code, out) == (0, "counted\n")
    assert sorted(err.splitlines()) == [
        *(r"  evil | good | info: log in\x1b[2J", r"  evil | info: half\x1b[2J", "  evil | way")
    ]


def test_verbose_asks_each_server_for_all_that_it_logs_as_with_one(config: Config, run: Run) -> None:
    def child(capabilities: object) -> dict[str, object]:
        _, command, *args = scripted(capabilities, logging_setLevel={"error": {"code": -32603, "message": "no level"}})
        return {"command": command, "args": args}

    file = config({"logs": child({"tools": {}, "logging": {}}), "silent": child({"tools": {}})})

    code, out, err = run("tools", "--config", file, AGREE, "--verbose")

    assert (code, out) == (0, "logs__t()\nsilent__t()\n")
    assert err == "  logs | its log level cannot be set: no level (-32603)\n"


async def test_a_server_that_is_ready_later_logs_everything_too() -> None:
    shown, states, server = list[tuple[str, str]](), list[str](), Server("late")

    @server.tool
    async def say(context: Context) -> str:
        await context.log("debug", "detail")
        return ""

    class Listening(Console):
        def show(self, text: str, server: str = "") -> None:
            shown.append((server, text))

        async def show_status(self, status: ServerStatus) -> None:
            states.append(status.state)

    verbose = _Verbose(Listening())
    with anyio.fail_after(200):
        async with ClientGroup({"a": server}, on_status=verbose.on_status, on_log=verbose.on_log, wait="all") as group:
            await verbose.log_everything(group)
            await group.add("b", server)
            while states.count("ready") < 2:
                await settled()
            await settled()
            await group.call_tool("b__say")
            while not shown:
                await settled()

    assert shown == [("b", "debug: detail")]


def test_a_server_that_dies_in_a_call_is_shown_with_its_exit_code_and_stderr(config: Config, run: Run) -> None:
    done = run("call", "--config", config({"desk": PROGRAM}), AGREE, "desk__die")

    assert done == (3, "", "mcp-host: desk exited with code 3; its stderr:\n  | on fire\n")


FAILED: list[tuple[str, dict[str, object], list[str], int, str]] = [
    ("no consent", {"dead": DEAD}, ["tools"], 7, "the server 'dead' has not been agreed to: there is no terminal to ask in: run mcp-host tools --config FILE in one, or add --approve-servers, which agrees to all servers of this file\n"),
    ("all are down", {"dead": DEAD}, ["tools", AGREE], 3, f"{IS_DOWN}\n"),
    ("each is named", {"dead": DEAD, "gone": DEAD}, ["tools", AGREE], 3, f"{IS_DOWN}\nmcp-host: {IS_DOWN.replace('dead', 'gone')}\n"),
    ("the one of a call is down", {"dead": DEAD}, ["call", "dead__x", AGREE], 3, f"{IS_DOWN}\n"),
    ("all are disabled", {"off": {**DEAD, "disabled": True}}, ["inspect", AGREE], 2, "all servers of the file are disabled\n"),
    ("the one of a call is disabled", {"off": {**DEAD, "disabled": True}}, ["call", "off__x", AGREE], 2, "the server 'off' is disabled\n"),
    ("no such server", {"dead": DEAD}, ["call", "x"], 2, "'x' is of none of the servers 'dead'\n"),
    ("no prompt can be answered", {"dead": DEAD}, ["chat", "--model", "arithmetic", AGREE], 3, f"{IS_DOWN}\n"),
]  # fmt: skip  # one case on each line


def test_without_a_server_the_command_fails(config: Config, run: Run, subtests: pytest.Subtests) -> None:
    for case, servers, words, code, err in FAILED:
        with subtests.test(case):
            assert run(*words, "--config", config(servers), prompt="Hello?") == (code, "", f"mcp-host: {err}")


def test_a_file_that_cannot_be_read_or_has_no_servers_is_one_sentence(
    run: Run, tmp_path: Path, config: Config, subtests: pytest.Subtests
) -> None:
    path = tmp_path / "none.json"
    assert run("tools", "--config", str(path)) == (2, "", f"mcp-host: {path}: there is no such file\n")

    empty = config({})
    for words in (["tools"], ["inspect"], ["call", "a__b"], ["chat", "--model", "arithmetic"]):
        with subtests.test(words[0]):
            result = (2, "", f"mcp-host: there are no servers in {empty}\n")
            assert run(*words, "--config", empty, prompt="Hello?") == result


def test_inspect_shows_each_server(urls: dict[str, object], config: Config, run: Run) -> None:
    file = config({**urls, "dead": DEAD, "off": {**DEAD, "disabled": True}})

    text, document = run("inspect", "--config", file, AGREE), run("inspect", "--config", file, AGREE, "--json")

    assert (text.code, text.err) == (0, "")
    lines = text.out.splitlines()
    assert lines[:3] == ["shop", "    calls itself  desk", "    version       1.0.0"]
    dead = lines.index("dead")
    assert lines[dead - 1 : dead + 2] == ["", "dead", "    state         down"]
    assert lines[-2:] == ["off", "    state         disabled"]
    servers = json.loads(document.out)["servers"]
    assert {name: each["state"] for name, each in servers.items()} == {
        "shop": "ready",
        "all": "ready",
        "dead": "down",
        "off": "disabled",
    }
    assert servers["all"]["serverInfo"]["name"] == "everything"
    assert servers["dead"]["error"].endswith("No such file or directory: '/no/such'")
    assert servers["off"] == {"state": "disabled"}


def test_a_server_that_cannot_be_inspected_costs_the_others_nothing(
    urls: dict[str, object], config: Config, run: Run
) -> None:
    _, program, *args = scripted({"resources": {}}, resources_list=UNKNOWN)

    done = run("inspect", "--config", config({"odd": {"command": program, "args": args}, **urls}), AGREE, "--json")

    servers = json.loads(done.out)["servers"]
    assert servers["odd"] == {"state": "ready", "error": "no\\x1b[2J such tool (-32602)"}
    assert [len(servers[name]["tools"]) for name in ("shop", "all")] == [7, 7]


def test_what_the_file_says_in_vain_is_a_warning(urls: dict[str, dict[str, str]], config: Config, run: Run) -> None:
    file = config({name: {**server, "mood": "good"} for name, server in urls.items()})

    call = run("call", "--config", file, AGREE, "shop__add", "a=1", "b=2")
    tools = run("tools", "--config", file, AGREE)

    assert (call.code, call.out) == (0, "3\n")
    assert re.findall("warning: (.*?: mood):", call.err) == ["shop: mood"]
    assert re.findall("warning: (.*?: mood):", tools.err) == ["shop: mood", "all: mood"]


def test_a_name_that_could_control_a_terminal_is_escaped(urls: dict[str, object], config: Config, run: Run) -> None:
    done = run("inspect", "--config", config({**urls, "a\x1b[2J": DEAD}), AGREE)

    assert (done.code, done.err) == (0, "")
    assert "\n\na\\x1b[2J\n    state         disabled\n" in done.out


OTHER_STATES: list[tuple[ServerState, str | None, ExitCode, str]] = [
    ("connecting", None, ExitCode.TIMEOUT, "the server 's' is connecting"),
    ("needs_login", "s: it wants a password", ExitCode.NO_LOGIN, "the server 's' needs a login: it wants a password"),
    ("disabled", "no command", ExitCode.USAGE, "the server 's' is disabled: no command"),
]


def test_the_exit_code_says_why_no_server_can_be_used(subtests: pytest.Subtests) -> None:
    for state, error, code, text in OTHER_STATES:
        status = ServerStatus(name="s", state=state, since=datetime.now(UTC), error=error)
        with subtests.test(state), pytest.raises(Exception, match=f"^{re.escape(text)}$") as caught:
            _check_ready([status], parse(["tools", "--config", "x"]))
        assert ExitCode.of(caught.value) is code


WRONG = [
    (["tools", "--config", "x", "http://y"], "--config has the servers: leave out the URL, or the command after --"),
    (["call", "--config", "x", "t", "--", "y"], "--config has the servers: leave out the URL, or the command after --"),
    (
        ["tools", "--config", "x", "-e", "A=b"],
        "--env is for a server on the command line, and not for those of --config",
    ),
    (["tools", "--config", "x", "--no-verify"], "--no-verify is for a server on the command line, and not for those"),
    (
        ["tools", "--config", "x", "--client-id", "a"],
        "--client-id is for a server on the command line, and not for those",
    ),
    (["tools", "--approve-servers", "http://x"], "--approve-servers and --ask-again are for the servers of --config"),
    (["read", "--config", "x", "a:b"], "unrecognized arguments: --config"),
]


def test_options_of_one_server_are_not_for_those_of_a_file(subtests: pytest.Subtests) -> None:
    for words, sentence in WRONG:
        with subtests.test(" ".join(words)):
            with pytest.raises(UsageError) as caught:
                parse(words)
            assert str(caught.value).startswith(sentence)


# At a terminal


def test_a_person_agrees_to_a_server_once_and_types_what_it_needs_unseen(
    config: Config, sit: Sitting, screen: Screen, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyringAnswers, "of_person", partial(KeyringAnswers, MemoryTokens()))
    program = {**PROGRAM, "args": [str(everything.__file__)], "env": {"PYTHONPATH": str(ROOT), "KEY": "${input:key}"}}
    wanted = {"type": "promptString", "id": "key", "description": "The key of the desk", "password": True}
    file = config({"desk": program}, inputs=[wanted])

    async def person() -> None:
        await screen.asks(START)
        screen.press("y\n")
        shown = await screen.asks(PROMPT)
        assert "  | The key of the desk\r\nWhat you type is not shown.\r\n" in shown
        screen.press("hunter2\n")
        await screen.shows("\r\n    hunter2\r\n")

    async def again() -> None:
        shown = await screen.asks(PROMPT)
        assert "Start this server?" not in shown
        screen.press("hunter3\n")
        await screen.shows("\r\n    hunter3\r\n")

    call = ("call", "--config", file, "desk__environment", "name=KEY")
    assert sit(person, *call) == 0
    assert run(*call) == (0, "hunter2\n", "")  # from the keyring
    assert sit(again, *call, "--ask-again") == 0
    assert run(*call) == (0, "hunter3\n", "")


def test_a_server_that_a_person_refuses_is_not_started(config: Config, sit: Sitting, screen: Screen) -> None:
    async def person() -> None:
        await screen.asks(START)
        screen.press("n\n")
        await screen.shows("the server 'dead' has not been agreed to: the user refused it")

    assert sit(person, "tools", "--config", config({"dead": DEAD})) == 7


@pytest.fixture
def talk(sit: Sitting, screen: Screen) -> Callable[..., list[str]]:
    """`talk(file, "Add.", "y")`: a person types a line at each prompt and question, and then Ctrl-D. What is on the screen then."""

    def talk(file: str, *lines: str) -> list[str]:
        async def person() -> None:
            for keys in (*(f"{line}\n" for line in lines), CTRL_D):
                await screen.asks(PROMPT, TOOL)
                screen.press(keys)

        assert sit(person, "chat", *WITH_MODEL, "--config", file, *PATIENT) == 0
        screen.rest()
        return screen.rows

    return talk


Talk = Callable[..., list[str]]
SINCE = re.compile(r" since [0-9:]{8}")


def test_a_conversation_has_the_tools_of_all_servers_under_one_set_of_approvals(
    urls: dict[str, object], config: Config, talk: Talk, provider: Provider
) -> None:
    add = ToolCall("shop__add", {"a": 1, "b": 2})
    provider.say(says("", add), says("3"), says("", add), says("3 again"))

    rows = talk(config({**urls, "dead": DEAD}), "Add.", "s", "Again.")

    assert rows[1:8] == [
        "    shop          ready, revision 2026-07-28, tools: 7",
        '                  (calls itself "desk 1.0.0")',
        "    all           ready, revision 2026-07-28, tools: 7",
        '                  (calls itself "everything 2.0")',
        "    dead          down",
        "                  cannot start '/no/such': [Errno 2] No such file or directory:",
        "                  '/no/such'",
    ]
    assert rows.count("    result        shop__add: 3") == 2
    asked = rows.index("Your client wants to call a tool of")
    assert rows[asked + 1] == '  | shop (calls itself "desk 1.0.0")'
    system = provider.requests[0].params.system_prompt
    assert system is not None
    assert system.startswith('How the server "all" describes its use, in its own words:\n\n> Be careful.')


def test_a_conversation_shows_its_servers_and_tools(
    urls: dict[str, object], config: Config, talk: Talk, provider: Provider
) -> None:
    rows = talk(config({"shop": urls["shop"]}), "/tools", "/servers", "/login nobody", "/login shop")

    tools = rows.index("> /tools")
    assert rows[tools + 1] == "    shop__add(a: integer, b: integer)"
    servers = rows.index("> /servers")
    assert SINCE.sub("", rows[servers + 1]) == "    shop          ready, revision 2026-07-28, tools: 7"
    login = rows.index("> /login nobody")
    assert rows[login + 1] == "mcp-host: 'nobody' is none of the servers 'shop'"
    assert rows[rows.index("> /login shop") + 1] == "shop is ready: it needs no login now."
    assert provider.requests == []


def test_a_server_of_a_conversation_that_dies_is_seen_to_go_and_come_back(
    config: Config, sit: Sitting, screen: Screen, provider: Provider
) -> None:
    told = Event()
    provider.say(says("", ToolCall("desk__die")), stalls(reached=told))

    async def person() -> None:
        await screen.asks(PROMPT)
        screen.press("Die.\n")
        await screen.shows("mcp-host: desk exited with code 3; its stderr:\r\n  | on fire\r\n")
        await screen.shows("    desk          ready since ")
        await screen.shows("restarts: 1")
        assert await to_thread.run_sync(told.wait, IN_TIME)
        ctrl_c()
        await screen.asks(PROMPT)
        screen.press(CTRL_D)

    assert sit(person, "chat", *WITH_MODEL, "--yes", "--config", config({"desk": PROGRAM}), *PATIENT) == 0

    failed = "the tool desk__die failed: its server is not available; it may have run"
    assert conversation(provider.requests[-1])[-1] == ("user", [[failed]])


def test_a_conversation_can_begin_without_a_server(config: Config, talk: Talk, provider: Provider) -> None:
    assert "No tools are offered." in talk(config({"dead": DEAD}), "/tools")


def test_a_conversation_with_one_server_shows_and_uses_the_same_of_it(
    urls: dict[str, dict[str, str]], sit: Sitting, screen: Screen, provider: Provider
) -> None:
    url = urls["all"]["url"]
    provider.say(says("Hello."))

    async def person() -> None:
        for line, shown in (
            ("/tools", "\n    add(a: integer, b: integer = 1)"),
            ("/servers", f'\n    {url} (calls itself "everything 2.0")'),
            ("/login x", "/servers and /tools show what there is."),
            ("Hello?", "Hello."),
        ):
            await screen.asks(PROMPT)
            screen.press(f"{line}\n")
            await screen.shows(shown)
        await screen.asks(PROMPT)
        screen.press(CTRL_D)

    assert sit(person, "chat", *WITH_MODEL, "--system", "Be brief.", url) == 0

    system = provider.requests[0].params.system_prompt
    said = "> Be careful.\n> \x1b[2Jmcp-host: all is well"
    assert system == f'Be brief.\n\nHow the server "{url}" describes its use, in its own words:\n\n{said}'


# Logins


def test_a_call_logs_in_where_a_person_is_there(
    site: Protected, config: Config, sit: Sitting, screen: Screen, run: Run, browser: Browser
) -> None:
    file = config({"site": {"url": site.url}})
    words = ("call", "--config", file, AGREE, "site__add", "a=1", "b=2")

    async def person() -> None:
        await screen.shows("See your browser.\r\n    3\r\n")

    refused = run(*words)
    assert sit(person, *words) == 0
    assert run(*words) == (0, "3\n", "")
    assert (refused.code, site.server.count("authorize")) == (10, 1)
    assert refused.err == f"mcp-host: the server 'site' needs a login: run mcp-host login {site.url}\n"


def test_a_login_of_the_command_is_one_for_a_file_with_the_server(site: Protected, config: Config, run: Run) -> None:
    login = run("login", site.url)

    assert login.code == 0
    assert run("call", "--config", config({"site": {"url": site.url}}), AGREE, "site__add", "a=1", "b=2").out == "3\n"


def test_a_conversation_begins_a_login_when_it_is_asked_to(
    site: Protected, config: Config, talk: Talk, provider: Provider, browser: Browser
) -> None:
    rows = talk(config({"site": {"url": site.url}}), "/login site", "/servers")

    shown = [SINCE.sub("", row) for row in rows]
    assert "    site          needs login, /login site begins one" in shown
    assert "    site          ready, revision 2026-07-28, tools: 1" in shown


def test_a_status_is_one_line(subtests: pytest.Subtests) -> None:
    since = datetime.now(UTC)
    ready = ServerStatus(name="s", state="ready", since=since, protocol_version="2025-11-25", tools=3, restarts=2)

    assert SINCE.sub("", about(ready)) == "ready, revision 2025-11-25, tools: 3, restarts: 2"
    assert (
        SINCE.sub("", about(ServerStatus(name="s", state="needs_login", since=since)))
        == "needs login, /login s begins one"
    )
