"""The command, from its arguments to its output and exit code."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from mcp_host import errors
from mcp_host.cli.commands.requests import REQUESTS, progress_line
from mcp_host.cli.output import ExitCode
from mcp_host.types import ProgressNotificationParams
from tests.asgi import serving
from tests.cli import everything, scripted_child
from tests.cli.bounded import IN_TIME, main
from tests.cli.conftest import Run
from tests.cli.models import WITH_MODEL, Provider, fails
from tests.cli.terminals import DESK, Terminal

SERVER = ["--", sys.executable, str(everything.__file__)]
MCP_HOST = [sys.executable, "-m", "mcp_host"]
PYTHON = Path(sys.executable).name  # what a server is called that it runs

server = everything.server  # at `url`

URL = "URL"  # in a table, where `everything` is

NO_METHOD = {"error": {"code": -32601, "message": "Method not found"}}
UNKNOWN = {"error": {"code": -32602, "message": "no\x1b[2J such tool"}}

Captured = pytest.CaptureFixture[str]


def python(program: str) -> list[str]:
    """A server that is one line of Python."""
    return ["--", sys.executable, "-I", "-S", "-c", program]


def scripted(capabilities: object, **answers: object) -> list[str]:
    """A server of the handshake revisions with these answers, by method with an underscore for the slash."""
    info = {"name": "scripted", "version": "0"}
    initialized = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
    script = {method.replace("_", "/"): answer for method, answer in answers.items()}
    script.setdefault("server/discover", NO_METHOD)
    script.setdefault("tools/list", {"result": {"tools": [{"name": "t", "inputSchema": {}}]}})
    script.setdefault("initialize", {"result": initialized})
    return ["--", sys.executable, "-I", "-S", str(scripted_child.__file__), json.dumps(script)]


def at(url: str, argv: list[str]) -> list[str]:
    return [url if word == URL else word for word in argv]


# What is printed


def test_tools_prints_names_arguments_and_descriptions_with_escapes_visible(url: str, run: Run) -> None:
    code, out, err = run("tools", url)

    assert (code, err) == (0, "")
    assert out.splitlines()[:8] == [
        "add(a: integer, b: integer = 1)",
        "    Add two numbers.",
        "",
        "    The second one is 1 unless you say otherwise.",
        r"evil\x1b[2J()",
        r"    Evil\u202e",
        r"    \x1b[2JWipes",
        r"    your\x07 screen.",
    ]


def text_result(text: str, **fields: object) -> dict[str, object]:
    return {"result": {"content": [{"type": "text", "text": text}], **fields}}


def with_call(result: object, **answers: object) -> list[str]:
    """A call of a scripted server with this answer."""
    return ["call", "t", *scripted({"tools": {}}, tools_call=result, **answers)]


FIRE = "the printer\nis on \x1b[2Jfire"
STRUCTURED = {"result": {"content": [], "structuredContent": {"n": 1, "s": "\x1b"}}}
OTHERS = {"result": {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}}, {"type": "hologram"}, {"type": "audio", "data": "AA", "mimeType": "audio/ogg"}]}}  # fmt: skip
FAILED = "mcp-host: the tool reported an error\n  | the printer\n  | is on \\x1b[2Jfire\n"
PRINTED: list[tuple[str, list[str], int, str, str]] = [
    ("no tools", ["tools", *scripted({"tools": {}}, tools_list={"result": {"tools": []}})], 0, "No tools are offered.\n", ""),
    ("the result of a call", ["call", URL, "add", '{"a": 2, "b": 3}'], 0, "5\n", ""),
    ("all kinds of content", ["call", URL, "contents"], 0, "text\n[image/png, 4 characters of base64]\na note\n[link to note://2]\n", ""),
    ("what controls a terminal", ["call", URL, everything.EVIL], 0, "\\x1b[2Jwiped\\r\\u202e\\x9b\nsecond line\n", ""),
    ("structured content without text", with_call(STRUCTURED), 0, '{"n": 1, "s": "\\u001b"}\n', ""),
    ("other content", with_call(OTHERS), 0, "[contents of a:b, 4 characters of base64]\n[hologram, which this version does not know]\n[audio/ogg, 2 characters of base64]\n", ""),
    ("a failed tool", with_call(text_result(FIRE, isError=True)), 1, "", FAILED),
    ("no progress without a terminal", ["call", URL, "work"], 0, "done\n", ""),
    ("a call of a tool that is not listed", with_call(text_result("called"), tools_list=NO_METHOD), 0, "called\n", ""),
    ("headers for a URL", ["call", URL, "add", '{"a": 1}', "-H", "X-One=1", "--header", "X-Two: 2"], 0, "2\n", ""),
    ("variables for a command", ["call", "environment", '{"name": "SECRET"}', "-e", "SECRET=a=b ", *SERVER], 0, "a=b \n", ""),
]  # fmt: skip  # one case on each line


def test_a_command_prints_what_it_was_asked_for_and_nothing_else(url: str, run: Run, subtests: pytest.Subtests) -> None:
    for case, argv, code, out, err in PRINTED:
        with subtests.test(case):
            assert run(*at(url, argv)) == (code, out, err)


def test_a_skipped_tool_is_a_warning(run: Run) -> None:
    tools = [{"name": "good", "inputSchema": {}}, {"name": "bad"}]

    code, out, err = run("tools", *scripted({"tools": {}}, tools_list={"result": {"tools": tools}}))

    assert (code, out, err.count("\n")) == (0, "good()\n", 1)
    assert err.startswith("mcp-host: warning: ")


def test_inspect_shows_the_server_its_capabilities_and_lists(url: str, run: Run) -> None:
    code, out, err = run("inspect", url)

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == ["Server", "    calls itself  everything", "    version       2.0"]
    assert lines[3] == "    revision      2026-07-28"
    assert "    instructions  Be careful." in lines
    assert r"                  \x1b[2Jmcp-host: all is well" in lines
    assert lines[lines.index("Tools (7)") + 1] == "    add(a: integer, b: integer = 1)"
    assert lines[lines.index("Resources (1)") :] == [
        "Resources (1)",
        "    note://1",
        "        note (One)",
        "        A note.",
        "",
        "Resource templates (1)",
        "    note://{number}",
        "        notes",
        "",
        "Prompts (1)",
        "    greet(name: string, mood?: string)",
        "        Greet somebody.",
    ]


def test_inspect_leaves_out_lists_that_the_server_does_not_have(run: Run) -> None:
    none, no_templates = {"result": {"resources": list[object]()}}, {"result": {"resourceTemplates": list[object]()}}
    for resources, templates, heading in (
        (none, NO_METHOD, "Resources (0)"),
        (NO_METHOD, no_templates, "Resource templates (0)"),
    ):
        answers = {"resources_list": resources, "resources_templates_list": templates}
        code, out, _ = run("inspect", *scripted({"resources": {}}, **answers))

        assert (code, [line for line in out.splitlines() if line.endswith(")")]) == (0, [heading])


def test_inspect_cuts_a_servers_long_name_and_version(run: Run) -> None:
    info = {"name": "n" * 5000, "version": "v" * 5000}
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}

    code, out, _ = run("inspect", *scripted({}, initialize={"result": result}))

    assert (code, out.count("... (5,000 characters in all)")) == (0, 2)
    assert (out.count("n" * 10), out.count("v" * 10)) != (0, 0)


# For programs


def test_json_is_one_document_in_the_spelling_of_the_protocol(run: Run) -> None:
    result = {"content": [{"type": "text", "text": "\x1b\x7f\x9b\u202e"}], "isError": False, "extra": 1}

    code, out, err = run("call", "t", "--json", *scripted({"tools": {}}, tools_call={"result": result}))

    assert (code, json.loads(out), err) == (0, result, "")
    assert out.isascii()
    assert all(char.isprintable() or char == "\n" for char in out)


def test_the_tools_document_has_the_servers_json(run: Run) -> None:
    tools = [{"name": "t", "inputSchema": {"type": "object"}, "vendor": [1]}]

    done = run("tools", "--json", *scripted({"tools": {}}, tools_list={"result": {"tools": tools}}))

    assert (done.code, json.loads(done.out)) == (0, {"tools": tools})


LISTS: dict[str, dict[str, Any]] = {
    "tools": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "prompts": {"prompts": [{"name": "p"}]},
    "resources": {
        "resources": [{"name": "r", "uri": "a:1"}],
        "resourceTemplates": [{"name": "u", "uriTemplate": "a:{n}"}],
    },
}


@pytest.mark.parametrize("kinds", [["tools"], ["prompts"], ["resources"], list(LISTS)], ids="+".join)
def test_the_inspection_document_has_the_handshake_and_the_advertised_lists(kinds: list[str], run: Run) -> None:
    capabilities: dict[str, object] = {kind: {} for kind in kinds}
    answers = {f"{kind}_list": {"result": lists} for kind, lists in LISTS.items()}
    answers["resources_templates_list"] = answers["resources_list"]

    done = run("inspect", "--json", *scripted(capabilities, **answers))

    handshake = {
        "protocolVersion": "2025-11-25",
        "serverInfo": {"name": "scripted", "version": "0"},
        "capabilities": capabilities,
    }
    lists = {name: items for kind in kinds for name, items in LISTS[kind].items()}
    assert (done.code, json.loads(done.out)) == (0, handshake | lists)


def test_a_failed_tool_is_a_document_and_exit_code_1(url: str, run: Run) -> None:
    code, out, err = run("call", url, "fail", "--json")

    assert (code, err) == (1, FAILED)
    assert json.loads(out) == {
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "everything", "version": "2.0"}},
        "resultType": "complete",
        "content": [{"type": "text", "text": FIRE}],
        "isError": True,
    }


DATA = {"error": {"code": -32000, "message": "no\x1b[2J", "data": {"why": "\x9b"}}}


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["tools", "--json", *scripted({"tools": {}}, tools_list=DATA)], {"type": "ServerError", "message": "no\\x1b[2J (-32000)", "exitCode": 5, "code": -32000, "data": {"why": "\x9b"}}),
        (["tools", "--json", *scripted({"tools": {}}, tools_list=UNKNOWN)], {"type": "ServerError", "message": "no\\x1b[2J such tool (-32602)", "exitCode": 5, "code": -32602}),
        (["tools", "--json", "--", "/no/such"], {"type": "ConnectFailed", "message": "cannot start '/no/such': [Errno 2] No such file or directory: '/no/such'", "exitCode": 3}),
        (["call", "--json"], {"type": "UsageError", "message": "there is no server: give its URL, or the command that starts it after --, or a file of servers: --config FILE (see mcp-host call --help)", "exitCode": 2}),
        (["call", URL, "add", "a=x", "--json"], {"type": "UsageError", "message": "a: 'x' is not of type 'integer'\na: integer, required\nb: integer, default 1", "exitCode": 2}),
    ],
    ids=["a server's", "without data", "no connection", "usage", "arguments"],
)  # fmt: skip  # one case on each line
@pytest.mark.usefixtures("home")  # a file of servers there would be named
def test_an_error_is_a_document_and_its_sentence_is_on_stderr(
    argv: list[str], error: dict[str, Any], url: str, run: Run
) -> None:
    code, out, err = run(*at(url, argv))

    assert (code, json.loads(out)) == (error["exitCode"], {"error": error})
    assert out.isascii()
    assert err.startswith("mcp-host: ")
    assert err.count("\n") == 1 + error["message"].count("\n")


def test_the_output_goes_to_a_redirected_stdout(url: str) -> None:
    output = StringIO()

    with redirect_stdout(output):
        assert main(["call", url, "add", '{"a": 1}']) == 0

    assert output.getvalue() == "2\n"


# Both kinds of target


def test_options_may_stand_anywhere_before_the_command(url: str, run: Run) -> None:
    done = run("call", "--json", url, "--timeout", "20", "add", "-H", "A=b", '{"a": 1}')

    assert (done.code, json.loads(done.out)["structuredContent"]) == (0, {"result": 2})


@pytest.mark.parametrize(
    ("era", "revision"),
    [("auto", "2026-07-28"), ("modern", "2026-07-28"), ("legacy", "2025-11-25"), ("2025-06-18", "2025-06-18")],
)
def test_the_era_can_be_chosen(era: str, revision: str, url: str, run: Run) -> None:
    done = run("inspect", "--json", "--era", era, url)

    assert (done.code, json.loads(done.out)["protocolVersion"]) == (0, revision)


# How it ends


NO_SERVER = ["--", "/no/such/program"]
ERRORS: list[tuple[list[str], int, str]] = [
    ([], 2, "a command is missing (demo, tools, call, read, prompt, complete, chat, proxy, doctor, inspect, login, logout, whoami, pins, servers) (see mcp-host --help)"),
    (["frob"], 2, "'frob' is no command (demo, tools, call, read, prompt, complete, chat, proxy, doctor, inspect, login, logout, whoami, pins, servers) (see mcp-host --help)"),
    (["list-tools"], 2, "'list-tools' is no command (demo, tools, call, read, prompt, complete, chat, proxy, doctor, inspect, login, logout, whoami, pins, servers); did you mean 'tools'? (see mcp-host --help)"),
    (["--era", "tools"], 2, "'--era' stands before the command: options come after it (demo, tools, call, read, prompt, complete, chat, proxy, doctor, inspect, login, logout, whoami, pins, servers) (see mcp-host --help)"),
    (["tools"], 2, "there is no server: give its URL, or the command that starts it after --, or a file of servers: --config FILE (see"),
    (["tools", "python"], 2, "'python' is no http(s) URL; a command that starts a server comes after --"),
    (["tools", "--"], 2, "there is no command after --"),
    (["demo", "--", "python"], 2, "no server takes part in this"),
    (["tools", "--", "http://me:hunter2@x/mcp"], 2, "'http://***@x/mcp' is a URL, which goes without --: a command comes after that"),
    (["tools", "--", "python server.py"], 2, "command[0] has a space in it, and there is no such program. "),
    (["tools", "--", "PORT=hunter2", "python", "x.py"], 2, "command[0] gives the variable PORT, and there is no such program. No shell reads a command line: pass it with -e NAME; "),
    (["tools", "http://x", "y"], 2, "unexpected argument 'y'; a command for the server comes after --"),
    (["tools", "http://"], 2, "not the URL of an HTTP server: "),
    (["tools", "http://x", "-H", "secret"], 2, "argument -H/--header: not of the form NAME: VALUE"),
    (["tools", "http://x", "sk-ant-api03-abcdefgh"], 2, "unexpected argument '***'; a command for the server comes after --"),
    (["tools", "http://x", "--client-secret=hunter2"], 2, "unrecognized arguments: --client-secret=***"),
    (["tools", "http://x", "--token:abc"], 2, "unrecognized arguments: --token:***"),
    (["tools", "Authorization: Bearer abcdefgh"], 2, "'Authorization: ***"),
    (["tools", "bearer abcdefgh"], 2, "'bearer ***' is no http(s) URL"),
    (["tools", "ftp://me:hunter2@x/"], 2, "'ftp://***@x/' is no http(s) URL"),
    (["tools", "eyJhbGciOiJub25lIn0.e30."], 2, "'***' is no http(s) URL"),
    (["tools", "aNameOfATool_thatHasNoDigits", "--timeout", "100"], 2, "'aNameOfATool_thatHasNoDigits' is no http(s) URL"),
    (["tools", "wJalrXUtnFEMI7K7MDENGbPxRfiCY9"], 2, "'***' is no http(s) URL"),
    (["call", URL, "add", "a=1", "b=ghp_abcdefghij"], 2, "b: '***' is not of type 'integer'"),
    (["login", "http://x", "--client-id", "a", "--client-secret-env", "hunter2"], 2, "there is no environment variable, which is to have the client's secret"),
    (["tools", "http://x", "--client-id", "a\nb"], 2, "--client-id has control characters, such as the end of a line"),
    (["login", "http://x", "--redirect-uri", "x"], 2, "--redirect-uri has to be a URL without a fragment"),
    (["tools", "http://x", "-e", "A=b"], 2, "--env is for a command; a URL takes --header"),
    (["tools", "-H", "A=b", *NO_SERVER], 2, "headers are for a URL; a command takes --env"),
    (["tools", "--timeout", "soon", *NO_SERVER], 2, "argument --timeout: 'soon' is not a number of seconds"),
    (["tools", "--timeout", "nan", *NO_SERVER], 2, "argument --timeout: 'nan' is not a number of seconds"),
    (["tools", "--era", "1999", *NO_SERVER], 2, "argument --era: invalid choice: '1999'"),
    (["tools", "--era", "modern", *scripted({"tools": {}})], 6, f"{PYTHON} …/tests/cli/scripted_child.py does not support 2026-07-28"),
    (["call", *NO_SERVER], 2, "TOOL is missing"),
    (["call", URL, "add", '{"a": 1,}'], 2, "the arguments are not JSON: trailing comma at line 1 column 9"),
    (["call", URL, "add", '{"a": NaN}'], 2, "the arguments are not JSON: expected value at line 1 column 7"),
    (["call", URL, "add", "[" * 9999], 2, "the arguments are not JSON: recursion limit exceeded at line 1"),
    (["call", URL, "add", "[1]"], 2, 'the arguments must be a JSON object, like {"name": "value"}'),
    (["call", URL, "add", "null"], 2, "'null' is no argument: write key=text, key:=JSON or one JSON object"),
    (["call", URL, "add", "=1"], 2, "'=1' is no argument: "),
    (["call", URL, "add", "a=\udcff"], 2, r"'a=\udcff' is not UTF-8"),
    (["call", URL, "add", "a:=x"], 2, "'a' is not JSON: expected value at line 1 column 1"),
    (["call", URL, "add", "a=@/no/such"], 2, "'a' is to be read from a file, which fails: [Errno 2] No such file"),
    (["call", URL, "add", "a=@-", "b:=@-"], 2, "only one argument can be read from stdin"),
    (["call", URL, "ad"], 2, "the server has no tool 'ad'; did you mean 'add'?"),
    (["call", URL, "add", "a=1", "bb=2"], 2, "'add' takes no argument 'bb'; did you mean 'b'?"),
    (["call", URL, "add", '{"bb": 2}'], 2, "'add' takes no argument 'bb'; did you mean 'b'?"),
    (["call", URL, "add"], 2, "'add' needs 'a'"),
    (["call", URL, "add", "a=1", "b=two"], 2, "b: 'two' is not of type 'integer'"),
    (["call", URL, "add", "a=1", "a=2"], 2, "'a' is given 2 times, and is no array"),
    (["call", "add", "--model", "gpt-5", *NO_SERVER], 2, "argument --model: there is no model 'gpt-5'; a model is arithmetic (built in), or PROVIDER:NAME"),
    (["demo", "--model", "gpt-5"], 2, "argument --model: there is no model 'gpt-5'; a model is arithmetic (built in), or PROVIDER:NAME"),
    (["tools", *scripted({"prompts": {}})], 2, f"{PYTHON} …/tests/cli/scripted_child.py did not advertise tools, which tools/list needs"),
    (["tools", "--", "/no/such\x1b[2J/program"], 3, r"cannot start '/no/such\x1b[2J/program'"),
    (["tools", "--", "/no/such", "--json"], 3, "cannot start '/no/such'"),  # which is the server's --json
    (["--", "tools"], 2, "'--' is no command (demo, tools, call, read, prompt, complete, chat, proxy, doctor, inspect, login, logout, whoami, pins, servers)"),
    (["tools", *python("print('\x1b[2Jhello')")], 3, rf"{PYTHON} exited with code 0; it seems to be no MCP server: its stdout begins with '\x1b[2Jhello'"),
    (["tools", *python("raise SystemExit('\x1b[2Jno')")], 3, f"{PYTHON} exited with code 1; its stderr:"),
    (["tools", "--timeout", "0.2", *python("import sys; sys.stdin.read()")], 4, f"{PYTHON} was not ready within 0.2 s"),
    (["call", "die", *DESK], 3, f"{PYTHON} exited with code 3; its stderr:"),
    (["call", "t", *scripted({"tools": {}}, tools_call=UNKNOWN)], 5, r"the server says: no\x1b[2J such tool (-32602)"),
    (["call", "t", *scripted({"tools": {}}, tools_list=UNKNOWN)], 5, r"the server says: no\x1b[2J such tool (-32602)"),
    (["inspect", *scripted({"tools": {}}, tools_list=UNKNOWN)], 5, r"the server says: no\x1b[2J such tool (-32602)"),
    (["tools", *scripted({}, initialize={"result": {}})], 6, "malformed InitializeResult: "),
]  # fmt: skip  # one case on each line


@pytest.mark.usefixtures("home")  # a file of servers there would be named
def test_each_error_has_an_exit_code_and_one_sentence(url: str, run: Run, subtests: pytest.Subtests) -> None:
    for argv, expected, sentence in ERRORS:
        with subtests.test(ascii(argv)[:60]):
            code, out, err = run(*at(url, argv))

            first, *rest = err.splitlines()
            assert (code, out) == (expected, "")
            assert first.startswith(f"mcp-host: {sentence}")
            assert all(line.startswith("  | ") for line in rest)
            assert all(char.isprintable() or char == "\n" for char in err)


def test_the_error_of_a_gateway_names_the_option_that_may_help(run: Run) -> None:
    with serving(Response(status_code=503)) as origin:
        done = run("tools", f"{origin}/mcp")

    text = f"HTTP 503 Service Unavailable from {origin}/mcp; with --era legacy no server/discover is sent"
    assert (done.code, done.err) == (5, f"mcp-host: {text}\n")


EXIT_CODES = """
exit codes:
  0         done
  1         the tool ran and reported an error
  2         the command was wrong, or needs what the server does not offer
  3         no connection to the server, or it was lost
  4         it took too long
  5         the server answered with an error
  6         the server broke the protocol
  7         input or an approval was missing, or the server asked for too much
  8         a tool has changed since it was pinned
  9         the model, or its provider, failed
  10        the server wants a login, and there is none
  11        a check of the host failed, or was not made
  70        a bug in mcp-host
  130       interrupted by Ctrl-C
  141       the reader of the output has gone
"""


def test_every_error_has_an_exit_code_that_the_help_explains(capsys: Captured) -> None:
    tree = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.McpError)]

    codes = {kind.__name__: ExitCode.of(kind.__new__(kind)) for kind in tree}

    expected = {
        "NotConnected": 2,
        "SessionLost": 3,
        "RequestTimeout": 4,
        "Unauthorized": 5,
        "MessageTooLarge": 6,
        "InputNotGiven": 7,
        "RoundsExceeded": 7,
        "ToolChanged": 8,
        "ToolPinsError": 2,
        "InputRefused": 9,
        "ProviderError": 9,
    }
    assert {name: codes[name] for name in expected} == expected
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.endswith(EXIT_CODES)
    assert all(f"\n  {code} " in EXIT_CODES for code in codes.values())


def test_help_is_also_a_word(capsys: Captured) -> None:
    for argv in (["help"], ["--help"]):
        with pytest.raises(SystemExit) as stopped:
            main(argv)
        assert stopped.value.code == 0

    out = capsys.readouterr().out
    assert out[: len(out) // 2] * 2 == out
    assert out.startswith("usage: mcp-host COMMAND ...\n")


SERVER_HELP = """
SERVER is the URL of a server. To start a server instead, leave it out and put
the command last, after --

"""


@pytest.mark.parametrize("verb", ["demo", "tools", "call", "read", "prompt", "complete", "inspect"])
def test_each_command_has_help_with_an_example(verb: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])

    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert f"examples:\n  mcp-host {verb}" in out
    assert (SERVER_HELP in out) == (verb != "demo")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
def test_a_stderr_that_takes_nothing_changes_neither_the_exit_code_nor_the_document(
    url: str, run: Run, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(REQUESTS, "inspect")  # a bug
    for argv, code in (
        (["call", URL, "fail"], 1),
        (["call", URL, "no-such-tool"], 2),
        (["call", "die", *DESK], 3),
        (["inspect", URL], 70),
        (["call", "count", "-v", *DESK], 0),
    ):
        with subtests.test(ascii(argv)), open("/dev/full", "w") as full:
            monkeypatch.setattr(sys, "stderr", full)
            verb, *rest = at(url, argv)
            assert run(verb, *rest)[0] == code
            done = run(verb, "--json", *rest)
            assert (done.code, bool(json.loads(done.out))) == (code, True)


def test_a_bug_in_the_command_is_exit_code_70(url: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REQUESTS, "tools")

    assert main(["tools", url, "--json"]) == 70

    out, err = capsys.readouterr()
    assert err.endswith("KeyError: 'tools'\n")
    assert json.loads(out) == {"error": {"type": "KeyError", "message": "'tools'", "exitCode": 70}}


@pytest.mark.skipif(sys.platform == "win32", reason="FIFOs and these signals are POSIX's")
@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_server_of_a_call_and_the_command_without_a_traceback(
    ending: signal.Signals, code: int, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    # What a shell runs in the background ignores Ctrl-C, and so does all that it starts: perhaps these tests.
    program = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from mcp_host.cli import main
sys.exit(main())
"""
    command = [sys.executable, "-c", program, "call", "--json", "hang", f"path={fifo}", *SERVER]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                assert select.select([reading], [], [], IN_TIME)[0], "the tool was never called"
                process.send_signal(ending)
                out, err = process.communicate(timeout=IN_TIME)
            finally:
                process.kill()  # which means nothing to one that has ended
        with pytest.raises(ProcessLookupError):
            os.kill(int(os.read(reading, 100)), 0)  # the server has written its id
    finally:
        os.close(reading)

    assert (process.returncode, err) == (code, b"")
    if ending == signal.SIGINT:
        error = {"type": "KeyboardInterrupt", "message": "interrupted by Ctrl-C", "exitCode": 130}
        assert json.loads(out) == {"error": error}


def test_a_reader_that_closes_the_output_early_is_no_error() -> None:
    with subprocess.Popen([*MCP_HOST, "tools", *SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        process.wait(IN_TIME)

    assert (process.returncode, err) == (141, b"")


def test_a_reader_that_closes_the_output_during_a_sampling_handler_is_no_error(
    run: Run, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 2026 the handler runs inside of the call, so the call fails."""
    provider.say(fails(BrokenPipeError()))

    with open(tmp_path / "output", "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert run("call", "opinion", "--yes", *WITH_MODEL, *DESK) == (141, "", "")


def test_a_character_that_the_console_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    console = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", console)

    assert main(with_call(text_result("\N{SNOWMAN}"))) == 0

    assert console.buffer.getvalue() == b"\\u2603\n"


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_each_stream_may_be_closed(name: str, url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has None for it."""
    monkeypatch.setattr(sys, name, None)

    try:
        assert main(["call", url, "add", "a=1", "b=2"]) == 0
    finally:
        getattr(sys, name).close()


@pytest.mark.skipif(sys.platform == "win32", reason="the shell is POSIX's")
def test_streams_may_be_closed_where_the_command_is_started(url: str) -> None:
    command = [*MCP_HOST, "call", url, "add", "a=1", "b=2"]
    everything_closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]

    done = subprocess.run([*everything_closed, *command], capture_output=True, timeout=IN_TIME, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_text_of_an_argument_can_come_from_stdin(
    url: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO("Grüße".encode()), encoding="latin-1"))

    assert main(["prompt", url, "greet", "name=@-"]) == 0

    assert capsys.readouterr().out.endswith("Be glad to see Grüße.\n")


def test_a_command_imports_only_what_it_needs() -> None:
    program = """
import sys
from mcp_host.cli.arguments import parse
from mcp_host.cli.commands import requests
parse(["tools", "--", "x"])
print([name for name in ("httpx", "jsonschema", "mcp_host.auth", "mcp_host.config") if name in sys.modules])
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=IN_TIME, check=True)

    assert done.stdout == b"[]\n"


@pytest.mark.parametrize(
    ("term", "shown"),
    [("xterm", "\r\x1b[K  | 1 of 4 half\\x1b[2J\r\x1b[K  | 2.5\r\x1b[K"), ("dumb", "")],
    ids=["", "dumb"],
)
async def test_progress_is_one_line_where_lines_can_be_cleared_and_is_cleared_at_the_end(
    term: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setenv("TERM", term)
    terminal = Terminal()

    with progress_line(terminal) as show:
        await show(ProgressNotificationParams(progress_token=1, progress=1, total=4, message="half\x1b[2J"))
        await show(ProgressNotificationParams(progress_token=1, progress=2.5))

    assert terminal.getvalue() == shown


def test_an_unlisted_result_is_an_error_unless_nothing_is_checked(run: Run) -> None:
    tool = {"name": "t", "inputSchema": {}, "outputSchema": {"type": "object", "required": ["n"]}}
    result = {"content": [{"type": "text", "text": "connection\nrefused\x1b[2J"}], "structuredContent": {"m": 1}}
    server = scripted({"tools": {}}, tools_list={"result": {"tools": [tool]}}, tools_call={"result": result})

    error = "the result of 't' is not as listed: 'n' is a required property"
    shown = f"mcp-host: {error}\nmcp-host: the result says: connection\\nrefused\\x1b[2J\n"
    assert run("call", "t", *server) == (6, "", shown)
    code, out, err = run("call", "t", "--json", *server)
    assert (code, err) == (6, shown)
    document = {"type": "InvalidToolOutput", "message": error, "exitCode": 6, "result": result}
    assert json.loads(out) == {"error": document}
    assert run("call", "t", "--unchecked", *server) == (0, "connection\nrefused\\x1b[2J\n", "")
