"""The servers of a file in a group: what they become, and the consent that those of a project need."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_host import Allow, Deny, ToolPolicy
from mcp_host.auth import MemoryTokens, OAuth, paste
from mcp_host.client.pins import ToolPins
from mcp_host.config import FoundFile, Input, Scope, read_servers
from mcp_host.errors import CallerError, ConfigError, NotConnected
from mcp_host.group import ClientGroup, ProposedServer, ServerConsents
from mcp_host.group.file_server import FileOptions, FileServer
from mcp_host.group.options import GroupOptions, NotStarted, ServerOptions
from mcp_host.limits import Limits
from mcp_host.secret import HIDDEN
from mcp_host.transports.http import StreamableHttp
from mcp_host.transports.stdio import Stdio
from mcp_host.types import Tool
from tests.extent import on_both
from tests.group.files import DOWN, Approver, running, written
from tests.group.support import Seen, names, states
from tests.transports.http_peers import Log

pytestmark = on_both


async def test_the_servers_of_a_users_file_are_called_under_their_names(project: Path) -> None:
    path = written(
        project / "mcp.json",
        {
            "shop": running(env={"TOKEN": "${TOKEN}"}, disabledTools=["drop"], timeout=25),
            "off": {**DOWN, "disabled": True},
            "sse": {"type": "sse", "url": "https://example.com/sse"},
            "unset": {**DOWN, "env": {"TOKEN": "${NOT_SET}"}},
            "few": {**DOWN, "env_vars": ["NOT_SET"]},
            "this program": {**DOWN, "odd": 1},
            "\x1b[2J": {**DOWN, "odd": 1},
            "a b": DOWN,
            "a_b_c8687a08": DOWN,
        },
        inputs=[{}],
    )
    group = ClientGroup.from_file(path, environment={"TOKEN": "t0k3n"}, wait="all")
    before = states(group)
    assert before == {
        "shop": "down",
        "off": "disabled",
        "sse": "disabled",
        "unset": "down",
        "few": "down",
        "this program": "disabled",
        "\x1b[2J": "disabled",
        "a b": "down",
    }
    assert (dict(group.clients), group.proposed_servers) == ({}, [])
    with anyio.fail_after(200):
        async with group:
            assert states(group) == {**before, "shop": "ready", "unset": "disabled"}
            assert await names(group) == ["shop__echo"]
            assert (await group.call_tool("shop__echo")).text == "t0k3n"
            with pytest.raises(NotConnected) as caught:
                await group.call_tool("unset__x")
            reason = "env.TOKEN: the environment has no variable 'NOT_SET'"
            assert str(caught.value) == f"the server 'unset' is disabled: {path}: server 'unset': {reason}"
            with pytest.raises(NotConnected, match=r"the server 'off' is disabled$"):
                await group.call_tool("off__x")
            assert (await group.enable("off")).state == "down"
            assert (await group.enable("unset")).state == "disabled"
            assert list(group.clients) == ["shop", "off", "few", "a b"]
            await group.disable("unset")
            with pytest.raises(NotConnected, match=r"the server 'unset' is disabled$"):
                await group.log_in("unset")

    errors = {name: status.error for name, status in group.status().items()}
    assert errors["this program"] is not None
    assert errors["this program"].startswith(f"{path}: server 'this program': 'this program' is what approvals call")
    assert (errors["sse"] or "").startswith(f"{path}: server 'sse': HTTP+SSE")
    assert group.warnings == [
        f"{path}: inputs[0]: it has no id, and is ignored",
        "'a_b_c8687a08' is left out: the servers 'a b' and 'a_b_c8687a08' would have tools of the same names",
        "shop: timeout: it is read as seconds, since hosts differ: with the dialect= of a host that has this key, its unit is certain",
        "few: env.NOT_SET: it is left out, since the environment has no such variable",
        "this program: odd: the key is unknown, and ignored",
        "\\x1b[2J: odd: the key is unknown, and ignored",
    ]


async def test_a_projects_server_is_started_once_a_person_has_agreed_and_is_asked_about_again_after_a_change(
    project: Path, subtests: pytest.Subtests
) -> None:
    """What was agreed to is kept for the next program, and for no other file, server, entry or command."""
    path, approver = project / ".mcp.json", Approver()
    environment = {"DIR": "/srv", "KEY": "k3y"}
    first = {"command": "no-such-program", "args": ["${DIR}", "-v"], "env": {"TOKEN": "${KEY}"}, "autoApprove": ["x"]}

    async def opened(servers: Mapping[str, object], **values: str) -> list[tuple[str, str | None]]:
        """Who was asked about, and what they were before."""
        approver.asked = []
        with anyio.fail_after(200):
            group = ClientGroup.from_file(
                written(path, servers), approve_servers=approver, environment=environment | values, wait="all"
            )
            async with group:
                assert set(states(group).values()) == {"down"}
        return [(each.name, each.previous) for each in approver.asked]

    hidden = "no-such-program '**********' -v"
    assert await opened({"shop": first}) == [("shop", None)]
    (proposed,) = approver.asked
    assert proposed == ProposedServer(
        name="shop",
        path=path,
        scope="project",
        kind="command",
        written="no-such-program '${DIR}' -v",
        expanded=hidden,
        cwd=str(project),
        variables={"TOKEN": "**********"},
        expansions=("args[0]: the variable DIR", "env.TOKEN: the variable KEY"),
        warnings=("autoApprove: no approval is taken from a file: your own approver decides",),
        digest=proposed.digest,
    )
    for change, servers, values, asked in (
        ("nothing", {"shop": first}, {}, []),
        ("the order of keys", {"shop": dict(reversed(first.items()))}, {}, []),
        ("a value that is only given to it", {"shop": first}, {"KEY": "other"}, []),
        ("what its command expands to", {"shop": first}, {"DIR": "/opt"}, [("shop", hidden)]),
        ("back", {"shop": first}, {}, [("shop", hidden)]),
        ("its entry", {"shop": {**first, "env": {"TOKEN": "x"}}}, {}, [("shop", hidden)]),
        ("another name", {"store": {**first, "env": {"TOKEN": "x"}}}, {}, [("store", None)]),
        ("both are known", {"shop": {**first, "env": {"TOKEN": "x"}}}, {}, []),
        ("a URL", {"shop": {"url": "http://127.0.0.1:9/${DIR}"}}, {}, [("shop", hidden)]),
    ):
        with subtests.test(change):
            assert await opened(servers, **values) == asked
    path = project.parent / ".mcp.json"
    assert await opened({"shop": first}) == [("shop", None)]


async def test_a_person_sees_and_agrees_to_all_of_a_projects_files_that_decides_what_runs(
    project: Path, subtests: pytest.Subtests
) -> None:
    """Values that are the person's own may change: they are told where these go."""
    entry = {
        "command": "./run.sh",
        "cwd": "tools",
        "envFile": ".env",
        "timeout": 5,
        "startup_timeout_sec": 7,
        "env": {
            "NODE_OPTIONS": "--title=${V} ${file:key}",
            "MODE": "\x1b[2J",
            "API_KEY": "sk-1234567890",
            "KEY_OF_FILE": "${file:key}",
        },
        "includeTools": ["a", "b"],
        "excludeTools": ["b"],
        "oauth": {"clientId": "me", "clientSecret": "s3cret"},
    }
    path = written(project / "servers.json", {"a": entry})
    environment = {"V": "1"}
    files = {".env": "PATH=/usr/bin\nTOKEN=t0k3n\n", "key": "k1"}
    for name, text in files.items():
        (project / name).write_text(text)
    approver = Approver()

    async def asked() -> list[ProposedServer]:
        approver.asked = []
        with anyio.fail_after(200):
            async with ClientGroup.from_file(path, scope="project", approve_servers=approver, environment=environment):
                return approver.asked

    (proposed,) = await asked()
    assert (proposed.cwd, proposed.env_file) == (str(project / "tools"), str(project / ".env"))
    assert proposed.variables == {
        "API_KEY": "***",
        "KEY_OF_FILE": "**********",
        "MODE": "\\x1b[2J",
        "NODE_OPTIONS": "--title=********** k1",
        "PATH": "/usr/bin",
        "TOKEN": "**********",
    }
    assert proposed.deciding == ("NODE_OPTIONS", "PATH")
    assert proposed.settings == (
        "timeout: 5.0 seconds",
        "connect_timeout: 7.0 seconds",
        "tools: a, b",
        "tools that are left out: b",
        "oauth.client_id: me",
        "oauth.client_secret: **********",
    )
    for name, changed in (
        (".env", "PATH=/tmp/evil:/usr/bin\nTOKEN=t0k3n\n"),
        (".env", f"PATH=/tmp/evil:/usr/bin\nTOKEN=t0k3n\nBASH_ENV={HIDDEN}\n"),  # the file has what hides others
        ("key", "k2"),
    ):
        with subtests.test(changed):
            assert await asked() == []
            (project / name).write_text(changed)
            assert [each.name for each in await asked()] == ["a"]
    environment["V"] = "2"
    assert await asked() == []


async def test_consent_to_a_url_is_for_what_the_file_sends_to_it(project: Path, subtests: pytest.Subtests) -> None:
    """A text of a header or of the login becomes a secret of the user by another file in its place, or by another dialect."""
    approver, environment = Approver(), {"KEY": "k3y"}
    path = project / "servers.json"
    entry: dict[str, object] = {
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"X-A": "$KEY", "X-B": "${file:value}", "X-C": "${KEY}"},
        "oauth": {"clientId": "me", "clientSecret": "${file:secret}"},
    }
    gemini = {"httpUrl": "http://127.0.0.1:9", "disabled": True}

    async def asked(**others: object) -> list[str]:
        approver.asked = []
        written(path, {"a": entry, **others})
        with anyio.fail_after(200):
            async with ClientGroup.from_file(
                path, scope="project", approve_servers=approver, environment=environment, wait=0
            ):
                return approver.names

    for each in ("value", "secret"):
        (project / each).write_text("harmless")
    assert await asked() == ["a"]
    environment["KEY"] = "another"
    assert await asked() == []
    for each in ("value", "secret"):
        with subtests.test(each):
            (project / each).write_text("another")
            assert await asked() == ["a"]
            assert await asked() == []
    with subtests.test("another dialect"):
        entry = {"url": entry["url"], "headers": {"X-A": "$KEY"}}
        assert await asked() == ["a"]
        assert await asked(b=gemini) == ["a"]


async def test_a_file_that_changes_while_a_person_is_asked_is_not_read_again(project: Path) -> None:
    """What is started is what was agreed to, however often the file changes. The next start asks again."""
    variables = project / ".env"
    variables.write_text("TOKEN=shown")
    path = written(project / "servers.json", {"a": running(envFile=".env", env={"NO": "${input:key}"})})
    approver = Approver()

    def ask(each: Input) -> str:
        variables.write_text("TOKEN=other\nNODE_OPTIONS=--require=./other.js")
        return each.id

    with anyio.fail_after(200):
        group = ClientGroup.from_file(path, scope="project", approve_servers=approver, ask_input=ask, wait="all")
        async with group:
            assert (await group.call_tool("a__echo")).text == "shown"
            await group.disable("a")
            await group.enable("a")
            assert (await group.call_tool("a__echo")).text == "other"

    assert [list(each.variables) for each in approver.asked] == [["NO", "TOKEN"], ["NO", "NODE_OPTIONS", "TOKEN"]]


@pytest.mark.backends("asyncio")
async def test_a_person_is_asked_in_vain_if_the_question_awaits_what_was_cancelled(project: Path) -> None:
    """On asyncio that looks as if the group were cancelled."""
    inputs = [{"id": "key", "type": "promptString"}]
    path = written(project / "servers.json", {"a": DOWN, "b": {**DOWN, "env": {"KEY": "${input:key}"}}}, inputs=inputs)

    async def awaits(asked: object) -> Any:
        cancelled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        return await cancelled

    async def approve(proposed: ProposedServer) -> Any:
        return await awaits(proposed) if proposed.name == "a" else True

    group = ClientGroup.from_file(path, scope="project", approve_servers=approve, ask_input=awaits, wait="all")
    with anyio.fail_after(200):
        async with group:
            assert states(group) == {"a": "needs_consent", "b": "disabled"}
            assert "asking for consent failed: McpError: it awaited a task that was cancelled" in str(
                group.status()["a"].error
            )
            assert group.status()["b"].error == "the question awaited a task that was cancelled"


async def test_a_question_that_is_withdrawn_by_closing_is_cancelled(project: Path) -> None:
    path = written(project / "servers.json", {"a": running(env={"NO": "${input:key}"})})
    reached: list[str] = []

    async def ask(asked: object) -> bool:
        reached.append("asked")
        event.set()
        await anyio.sleep_forever()
        raise AssertionError

    for arguments in ({"approve_servers": ask}, {"approve_servers": Approver(), "ask_input": ask}):
        event = anyio.Event()
        group = ClientGroup.from_file(path, scope="project", wait="none", **arguments)
        with anyio.fail_after(200):
            async with group:
                await event.wait()
            assert states(group)["a"] == "down"

    assert reached == ["asked", "asked"]


async def test_only_servers_of_a_project_need_consent_or_all_of_a_file_of_unknown_scope_if_the_host_asks(
    project: Path, subtests: pytest.Subtests
) -> None:
    path = written(project / "servers.json", {"a": DOWN})
    for scope, expected in (
        ("managed", ("down", [])),
        ("local", ("down", [])),
        ("user", ("down", [])),
        ("project", ("needs_consent", ["a"])),
        (None, ("needs_consent", ["a"])),
    ):
        with subtests.test(scope), anyio.fail_after(200):
            approver, found = Approver("a"), FoundFile(path, scope=scope)  # type: ignore[arg-type]  # it is one of them
            async with ClientGroup.from_file(found, approve_servers=approver, wait="all") as group:
                assert (states(group)["a"], approver.names) == expected
            async with ClientGroup.from_file(path, scope=scope, wait="all") as group:  # type: ignore[arg-type]  # likewise
                assert states(group)["a"] == ("needs_consent" if scope == "project" else "down")


async def test_a_refusal_holds_until_the_group_is_opened_again_or_the_server_is_enabled(project: Path) -> None:
    approver, seen = Approver("a"), Seen()
    path = written(project / ".mcp.json", {"a": DOWN, "b": DOWN, "unset": {"command": "${NOT_SET}"}})
    group = ClientGroup.from_file(path, approve_servers=approver, on_status=seen, roots=[], wait="all")
    with anyio.fail_after(200):
        async with group:
            assert states(group) == {"a": "needs_consent", "b": "down", "unset": "disabled"}
            await group.set_roots([])
            with pytest.raises(
                NotConnected, match="the server 'a' has not been agreed to: approve_servers has refused"
            ):
                await group.call_tool("a__x")
            assert sorted(approver.names) == ["a", "b"]
            assert (await group.enable("a")).state == "needs_consent"
        async with group:
            assert states(group) == {"a": "needs_consent", "b": "down", "unset": "disabled"}
            approver.refused = ()
            assert (await group.enable("a")).state == "down"

    assert sorted(approver.names) == ["a", "a", "a", "a", "b"]
    assert seen.of("a")[:3] == ["connecting", "needs_consent", "needs_consent"]  # asked about, and refused


DECISIONS: dict[str, tuple[object, str | None]] = {
    "True": (True, None),
    "Allow": (Allow(), None),
    "False": (False, "approve_servers has refused it"),
    "Deny": (Deny(), "approve_servers has refused it"),
    "Deny with a reason": (Deny("no terminal"), "no terminal"),
    "nothing": (
        None,
        "asking for consent failed: TypeError: it has to return True or False, Allow or Deny, not NoneType",
    ),
    "an error": (RuntimeError("no"), "asking for consent failed: RuntimeError: no"),
}


async def test_what_approve_servers_returns_decides_and_nothing_else_is_consent(
    project: Path, subtests: pytest.Subtests
) -> None:
    """It is a plain function here, which runs in a thread."""
    path = written(project / ".mcp.json", {"a": DOWN})
    for name, (decision, error) in DECISIONS.items():

        def decide(proposed: ProposedServer, decision: Any = decision) -> bool:
            assert threading.current_thread() is not threading.main_thread()
            if isinstance(decision, Exception):
                raise decision
            return decision  # type: ignore[no-any-return]  # some are none

        with subtests.test(name), anyio.fail_after(200):
            consents = ServerConsents(project / name)
            async with ClientGroup.from_file(path, approve_servers=decide, consents=consents, wait="all") as group:
                status = group.status()["a"]
                assert status.state == ("down" if error is None else "needs_consent")
                assert error is None or status.error == error
                assert consents.servers() == ({str(path): ["a"]} if error is None else {})


async def test_a_host_agrees_later_to_what_it_has_shown(project: Path) -> None:
    """Nobody is asked meanwhile, or the question is withdrawn."""
    path = written(
        project / ".mcp.json", {"a": DOWN, "b": {**DOWN, "args": ["${V}"]}, "off": {**DOWN, "disabled": True}}
    )
    environment = {"V": "1"}
    with anyio.fail_after(200):
        group = ClientGroup.from_file(path, environment=environment, wait="all")
        async with group:
            assert states(group) == {"a": "needs_consent", "b": "needs_consent", "off": "disabled"}
            a, b = group.proposed_servers
            with pytest.raises(NotConnected, match="without approve_servers"):
                await group.log_in("a")
            assert (await group.approve_server(a)).state == "down"
            with pytest.raises(CallerError, match="the server 'a' does not wait for consent"):
                await group.approve_server(a)
            environment["V"] = "2"
            await group.enable("b")
            with pytest.raises(CallerError, match="the server 'b' has changed since: look at it again"):
                await group.approve_server(b)
            assert [each.name for each in group.proposed_servers] == ["b"]
        with pytest.raises(NotConnected, match="the group is not open"):
            await group.approve_server(b)

        async def ask_for_ever(proposed: ProposedServer) -> bool:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(proposed.name)
            raise AssertionError

        ended = list[str]()
        seen = Seen()
        group = ClientGroup.from_file(
            path, environment=environment, approve_servers=ask_for_ever, wait="none", on_status=seen
        )
        async with group:
            await seen.until("b", "needs_consent")
            assert (await group.approve_server(group.proposed_servers[0])).state == "down"
            assert ended == ["b"]


async def test_people_are_asked_about_one_server_after_another_while_the_others_connect(project: Path) -> None:
    """Entering waits for the answers; removing a server withdraws its question."""
    path = written(project / ".mcp.json", dict.fromkeys("abc", DOWN))
    user = written(project / "user.json", {"mine": running()})
    asked, answer, asking, most = Log[str](), anyio.Event(), 0, 0

    async def approve(proposed: ProposedServer) -> bool:
        nonlocal asking, most
        asking += 1
        most = max(asking, most)
        asked.append(proposed.name)
        try:
            await answer.wait()
        finally:
            asking -= 1
        return True

    seen = Seen()
    files: list[Path | FoundFile] = [path, FoundFile(user, scope="user")]
    group = ClientGroup.from_file(files, approve_servers=approve, on_status=seen, wait=0)
    with anyio.fail_after(200):
        async with anyio.create_task_group() as tasks:
            entered = anyio.Event()

            async def enter() -> None:
                async with group:
                    entered.set()
                    await anyio.sleep_forever()

            tasks.start_soon(enter)
            await seen.until("mine", "ready")
            for each in "abc":
                await seen.until(each, "needs_consent")
            assert (len(asked), entered.is_set(), list(group.status())) == (1, False, ["a", "b", "c", "mine"])
            await group.remove(asked[0])
            await asked.reaches(lambda asked: len(asked) == 2)
            answer.set()
            await entered.wait()
            tasks.cancel_scope.cancel()

    assert (sorted(asked), most) == (["a", "b", "c"], 1)


async def test_a_server_that_is_disabled_by_its_own_approver_stays_disabled(project: Path) -> None:
    async def approve(proposed: ProposedServer) -> bool:
        tasks.start_soon(group.disable, "a")
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
        return False

    path = written(project / ".mcp.json", {"a": DOWN})
    group = ClientGroup.from_file(path, approve_servers=approve, wait="all")
    with anyio.fail_after(200):
        async with anyio.create_task_group() as tasks, group:
            assert (states(group), group.status()["a"].error) == ({"a": "disabled"}, None)


async def test_what_the_hosts_own_functions_raise_costs_one_server(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(each: Input) -> str:
        raise RuntimeError("no person")

    path = written(project / "mcp.json", {"a": {**DOWN, "args": ["${input:key}"]}, "b": DOWN})
    with anyio.fail_after(200):
        group = ClientGroup.from_file(path, approve_servers=Approver(), ask_input=ask, wait="all")
        async with group:
            assert states(group) == {"a": "disabled", "b": "down"}
            assert group.status()["a"].error == "RuntimeError: no person"

    assert "a: it cannot be started" in caplog.text


async def test_the_question_says_what_the_file_proposes_for_inputs(project: Path) -> None:
    """A person takes a proposal with one key, and its place in the command may be hidden."""
    path = project / ".vscode" / "mcp.json"
    path.parent.mkdir()
    inputs = [
        {"id": "debug", "type": "promptString", "default": "--require=./it.js"},
        {"id": "region", "type": "pickString", "options": ["eu", "us"]},
        {"id": "key", "type": "promptString"},
        {"id": "long", "type": "promptString", "default": "x" * 5_000},
    ]
    env = {"NODE_OPTIONS": "${input:debug}", "REGION": "${input:region}", "KEY": "${input:key}${input:long}"}
    path.write_text(json.dumps({"servers": {"a": {**DOWN, "env": env}}, "inputs": inputs}))
    approver = Approver()

    with anyio.fail_after(200):
        async with ClientGroup.from_file(path, approve_servers=approver, ask_input=lambda each: "x", wait="all"):
            pass

    [proposed] = approver.asked
    assert [each for each in proposed.expansions if "proposes" in each] == [
        "the input debug: the file proposes --require=./it.js",
        "the input region: the file proposes eu or us",
        f"the input long: the file proposes {'x' * 4_000}… (5000 characters)",
    ]


async def test_inputs_are_asked_for_once_after_the_consent_and_kept(project: Path) -> None:
    """Two servers have one in common. A store keeps the answers for the next group."""
    inputs = [{"id": each, "type": "promptString", "password": True} for each in ("key", "other")]
    servers = {"a": {**DOWN, "args": ["${input:key}"]}, "b": {**DOWN, "args": ["${input:key}", "${input:other}"]}}
    path = project / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"servers": servers, "inputs": inputs}))
    asked, approver = list[str](), Approver()

    def ask(each: Input) -> str | None:
        asked.append(each.id)
        return "s3cret" if each.id == "key" else None

    with anyio.fail_after(200):
        async with ClientGroup.from_file(path, approve_servers=approver, ask_input=ask, wait="all") as group:
            assert states(group) == {"a": "down", "b": "disabled"}
            await group.enable("a")
            assert sorted(asked) == ["key", "other"]
        async with ClientGroup.from_file(path, approve_servers=approver, wait="all") as group:
            status = group.status()
            assert (status["a"].error or "").endswith("server 'a': args[0]: the input 'key' has no answer")

    assert sorted(approver.names) == ["a", "b"]
    assert {each.expanded for each in approver.asked} == {
        "no-such-program '${input:key}'",
        "no-such-program '${input:key}' '${input:other}'",
    }
    assert "s3cret" not in repr(group) + str(status)


async def test_consents_that_cannot_be_read_are_none_and_one_that_cannot_be_kept_holds_this_once(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, approver = written(project / ".mcp.json", {"a": DOWN}), Approver()
    broken, locked = project / "broken.json", project / "locked.json"
    broken.write_text("[]")
    locked.with_name("locked.json.lock").mkdir()
    with anyio.fail_after(200):
        async with ClientGroup.from_file(
            path, approve_servers=approver, consents=ServerConsents(broken), wait="all"
        ) as group:
            status = group.status()["a"]
            assert (status.state, approver.asked) == ("needs_consent", [])
            assert (status.error or "").startswith(f"{broken}: there are no consents to servers in it")
        async with ClientGroup.from_file(
            path, approve_servers=approver, consents=ServerConsents(locked), wait="all"
        ) as group:
            assert (states(group), approver.names) == ({"a": "down"}, ["a"])

    assert f"a: the consent is not remembered: {locked}: the consents to servers cannot be saved" in caplog.text


async def test_what_an_entry_says_becomes_options_of_the_server(project: Path, subtests: pytest.Subtests) -> None:
    stdio: dict[str, object] = {"command": "uvx", "args": ["shop"]}
    times = {"tool_timeout_sec": 5, "startup_timeout_sec": 2}
    for name, entry, limits, expected in (
        ("a command", stdio, None, None),
        ("limits of the group", stdio, Limits(timeout=7), Limits(timeout=7)),
        ("one time", {**stdio, "tool_timeout_sec": 5}, None, Limits(timeout=5)),
        ("another", {**stdio, "startup_timeout_sec": 2}, None, Limits(connect_timeout=2)),
        (
            "both",
            stdio | times,
            Limits(timeout=7, idle_timeout=7),
            Limits(timeout=5, idle_timeout=7, connect_timeout=2),
        ),
    ):
        with subtests.test(name):
            assert await prepared(project, entry, limits=limits) == ServerOptions(
                Stdio(["uvx", "shop"]), limits=expected
            )
    for name, keys, allowed in (
        ("all tools", {}, ["a", "b", "c"]),
        ("a list of them", {"includeTools": ["a", "b"]}, ["a", "b"]),
        ("all but some", {"excludeTools": ["a"]}, ["b", "c"]),
        ("a list but for some", {"includeTools": ["a", "b"], "excludeTools": ["a"]}, ["b"]),
    ):
        with subtests.test(name):
            policy = (await prepared(project, stdio | keys)).tools or ToolPolicy()
            tools = [Tool(name=each, input_schema={"type": "object"}) for each in "abc"]
            assert [tool.name for tool in tools if policy.allows(tool)] == allowed


async def test_a_server_over_http_can_log_in_unless_the_file_has_a_token_or_forbids_it(
    project: Path, subtests: pytest.Subtests
) -> None:
    url: dict[str, object] = {"url": "http://127.0.0.1:9/mcp"}
    for name, keys, can_log_in in (
        ("a URL", {}, True),
        ("another header", {"headers": {"X-Key": "1"}}, True),
        ("settings", {"oauth": {"clientId": "me", "scopes": ["a"], "callbackPort": 8123}}, True),
        ("a redirect URI", {"oauth": {"clientId": "me", "redirectUri": "http://localhost:8123/back"}}, True),
        ("a token", {"headers": {"authorization": "Bearer 1"}}, False),
        ("no login", {"oauth": False}, False),
    ):
        with subtests.test(name):
            transport = (await prepared(project, url | keys)).server
            assert isinstance(transport, StreamableHttp)
            assert isinstance(transport.auth, OAuth) == can_log_in
    own = (await prepared(project, url, login=paste(), tokens=MemoryTokens())).server
    assert isinstance(own, StreamableHttp)
    assert isinstance(own.auth, OAuth)
    with pytest.raises(NotStarted, match="server 'a': oauth: "):
        await prepared(project, url | {"oauth": {"redirectUri": "https://example.com/back"}})
    elsewhere = ("authServerMetadataUrl", "authorizationUrl", "tokenUrl", "resource")
    oauth = {"clientId": "x", **dict.fromkeys(elsewhere, "https://example.com/t")}
    assert ClientGroup.from_file(written(project / "mcp.json", {"a": url | {"oauth": oauth}})).warnings == [
        f"a: oauth.{name}: it is not used: the server says where to log in"
        for name in ("metadata_url", "authorization_url", "token_url", "resource")
    ]


async def prepared(project: Path, entry: Mapping[str, object], **options: Any) -> ServerOptions:
    (found,) = read_servers(written(project / "mcp.json", {"a": entry})).servers
    server = FileServer(found, FileOptions(environment={}, **options))
    return await server.prepare(lambda proposed: None)


async def test_a_hosts_file_may_be_empty(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text("")
    async with ClientGroup.from_file(path) as group:
        assert (group.status(), group.warnings) == ({}, [f"{path}: it is empty"])


def test_a_file_that_cannot_be_read_and_a_wrong_argument_are_errors_at_once(project: Path) -> None:
    path = written(project / "mcp.json", {"a": DOWN})
    with pytest.raises(ConfigError, match=r"nothing\.json"):
        ClientGroup.from_file([path, project / "nothing.json"])
    with pytest.raises(TypeError, match="approve_servers"):
        ClientGroup.from_file(path, approve_servers=7)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(TypeError, match="ask_input"):
        ClientGroup.from_file(path, ask_input=7)  # type: ignore[arg-type]  # likewise
    with pytest.raises(TypeError, match="watch"):
        ClientGroup.from_file(path, watch=7)  # type: ignore[arg-type]  # likewise
    with pytest.raises(ValueError, match="there is no dialect"):
        ClientGroup.from_file(path, dialect="x")
    with pytest.raises(TypeError, match="unexpected"):
        ClientGroup.from_file(path, unknown=1)  # type: ignore[call-arg]  # likewise
    assert [*GroupOptions.__annotations__] == [*signature(ClientGroup).parameters][1:]


async def test_the_servers_can_be_prepared_without_being_connected(project: Path) -> None:
    """For what connects them in place of the group."""
    entries = {
        "own": {"command": "a", "timeout": 5000},
        "odd": {"url": "https://example.com/mcp"},
        "off": {**DOWN, "disabled": True},
    }
    approver = Approver("odd")
    group = ClientGroup.from_file(written(project / ".mcp.json", entries), approve_servers=approver)

    prepared = await group.prepare()

    [own] = prepared.values()
    assert isinstance(own.server, Stdio)
    assert (list(prepared), own.server.command, own.limits) == (["own"], ["a"], Limits(timeout=5.0))
    assert states(group) == {"own": "down", "odd": "needs_consent", "off": "disabled"}
    added = ServerOptions(["x"], enabled=True)
    assert await ClientGroup({"a": added}).prepare() == {"a": added}
    async with ClientGroup({}) as opened:
        with pytest.raises(CallerError, match="the group is open"):
            await opened.prepare()


async def test_variables_of_a_project_need_consent_in_a_file_of_the_user_too(
    project: Path, subtests: pytest.Subtests
) -> None:
    """Its authors may write there what decides what is run."""
    own = project.parent / "own"
    own.mkdir(exist_ok=True)
    (own / ".env").touch()
    servers = {
        "file": {**DOWN, "env": {"PATH": "${file:.env}"}},
        "envFile": {**DOWN, "envFile": "${workspaceFolder}/.env"},
        "own": {**DOWN, "envFile": str(own / ".env"), "args": ["${workspaceFolder}/server.js"]},
        "plain": DOWN,
    }
    path, approver = written(own / "servers.json", servers), Approver("file")
    scopes: tuple[Scope, ...] = ("user", "local", "managed")
    for scope in scopes:
        with subtests.test(scope), anyio.fail_after(200):
            approver.asked = []
            (project / ".env").write_text("NODE_OPTIONS=--require ./evil.js")
            consents = ServerConsents(own / scope)
            group = partial(ClientGroup.from_file, path, scope=scope, workspace=project, consents=consents)
            async with group(approve_servers=approver, wait="all") as opened:
                assert states(opened) == dict.fromkeys(servers, "down") | {"file": "needs_consent"}
            assert {each.name: each.variables for each in approver.asked} == {
                "file": {"PATH": "NODE_OPTIONS=--require ./evil.js"},
                "envFile": {"NODE_OPTIONS": "--require ./evil.js"},
            }
            async with group(wait="all") as opened:  # with nobody to ask
                assert states(opened) == dict.fromkeys(servers, "down") | {"file": "needs_consent"}
            (project / ".env").write_text("NODE_OPTIONS=--require ./worse.js")
            async with group(wait="all") as opened:
                changed = {"file": "needs_consent", "envFile": "needs_consent"}
                assert states(opened) == dict.fromkeys(servers, "down") | changed

    without = ClientGroup.from_file(written(own / "servers.json", {"a": {**DOWN, "envFile": ".env"}}), scope="user")
    async with without:
        assert states(without) == {"a": "down"}


async def test_a_prepared_server_takes_pins_beside_the_filter_of_its_file(project: Path) -> None:
    approver, pins = Approver(), ToolPins()
    file = written(project / ".mcp.json", {"shop": running(disabledTools=["drop"])})
    with anyio.fail_after(60):
        prepared = await ClientGroup.from_file(file, approve_servers=approver, pins=pins).prepare()
        async with ClientGroup(prepared, wait="all") as group:
            assert await names(group) == ["shop__echo"]

    assert (approver.names, pins.servers()) == (["shop"], {"shop": ["echo"]})
