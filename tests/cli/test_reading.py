"""``read``, ``prompt`` and ``complete``, from their arguments to their output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from mcp_host.testing import Server
from mcp_host.types import BlobResourceContents, ImageContent, PromptMessage, TextContent, TextResourceContents
from tests.cli.bounded import IN_TIME, main
from tests.cli.conftest import Run
from tests.cli.terminals import Terminal
from tests.cli.test_command import Captured, scripted

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
CLEAR = "\x1b[2J"  # clears a terminal
FULL = "mcp-host: cannot write the output: [Errno 28] No space left on device\n"
VERBATIM = f"Grüße\r\n{CLEAR}\tend"

CapturedBytes = pytest.CaptureFixture[bytes]

server = Server("library")


@server.resource("text:1", mime_type="text/plain")
def text() -> str:
    return VERBATIM


@server.resource("image:1", mime_type="image/png")
def image() -> bytes:
    return PNG


@server.resource("texts:1")
def texts() -> list[TextResourceContents]:
    return [TextResourceContents(uri="texts:1/a", text="one"), TextResourceContents(uri="texts:1/b", text="two")]


@server.resource("mixed:1")
def mixed() -> list[TextResourceContents | BlobResourceContents]:
    return [TextResourceContents(uri="mixed:1/a", text="one"), BlobResourceContents(uri="mixed:1/b", blob="AAAA")]


@server.resource("broken:1")
def broken() -> BlobResourceContents:
    return BlobResourceContents(uri="broken:1", blob="A\x1bAA")


@server.resource_template("page://{book}/{page}")
def page(book: str, page: int) -> str:
    return f"page {page} of {book}"


@server.resource_template("file:///{+path}")
def file(path: str) -> str:
    return f"the file {path}"


@server.prompt
def review(language: str, style: str = "kind") -> list[PromptMessage]:
    """Review a program."""
    return [
        PromptMessage(role="user", content=TextContent(text=f"Review this {language}.\nBe {style}.")),
        PromptMessage(role="user", content=ImageContent(data="AAAA", mime_type="image/png")),
        PromptMessage(role="assistant", content=TextContent(text=f"{CLEAR}Gladly.")),
    ]


@server.completion("review", "language")
def languages(value: str, given: Mapping[str, str]) -> list[str]:
    return [f"{name} {given}" for name in ("python", "pascal\x1b", "rust") if name.startswith(value)]


@server.completion("page://{book}/{page}", "book")
def books(value: str, given: Mapping[str, str]) -> list[str]:
    return [f"book {number}" for number in range(101)]


# read


@pytest.mark.parametrize(
    ("uri", "contents"), [("text:1", VERBATIM.encode()), ("image:1", PNG), ("texts:1", b"one\ntwo")]
)
def test_a_pipe_and_a_file_get_the_contents_byte_for_byte(
    uri: str, contents: bytes, url: str, capfdbinary: CapturedBytes, tmp_path: Path
) -> None:
    assert main(["read", url, uri]) == 0
    assert main(["read", url, uri, "--output", "-"]) == 0
    assert main(["read", url, uri, "--output", str(tmp_path / "contents")]) == 0

    assert capfdbinary.readouterr() == (contents * 2, b"")
    assert (tmp_path / "contents").read_bytes() == contents


def test_a_terminal_gets_text_that_cannot_control_it(url: str) -> None:
    with redirect_stdout(Terminal()) as terminal:
        assert main(["read", url, "text:1"]) == 0

    assert terminal.getvalue() == "    Grüße\n    \\x1b[2J    end\n"


def test_a_terminal_gets_no_bytes_but_a_hint(url: str, capsys: Captured, tmp_path: Path) -> None:
    with redirect_stdout(Terminal()) as terminal:
        assert main(["read", url, "image:1"]) == 2
        assert main(["read", url, "image:1", "-o", str(tmp_path / "image")]) == 0

    assert terminal.getvalue() == ""
    hint = "mcp-host: 'image:1' is no text (image/png, 10 bytes): use --output FILE, or a pipe\n"
    assert capsys.readouterr().err == hint
    assert (tmp_path / "image").read_bytes() == PNG


ERRORS: list[tuple[list[str], int, str]] = [
        (["read", "mixed:1"], 2, "'mixed:1' has 2 parts, and not all are text: use --json"),
        (["read", "broken:1"], 6, "the contents of 'broken:1' are not base64: Only base64 data is allowed"),
        (["read", "text:1", "--output", "/no/such/folder/file"], 2, "cannot write the contents: [Errno 2] No such file"),
        (["read", "text:1", "a=1"], 2, "'text:1' takes no argument 'a'"),
        (["read", "page://{book}/{page}", "book=1"], 2, "'page://{book}/{page}' needs 'page'"),
        (["read", "page://{book}/{page}", "book=1", "pag=2"], 2, "'page://{book}/{page}' takes no argument 'pag'; did you mean 'page'?"),
        (["read", "page://x{?q}", "q=1"], 2, "the expression '{?q}' of a template is not supported: give the whole URI"),
        (["read", "gone:1"], 5, "the server says: Resource not found (-32602)"),
        (["read"], 2, "URI is missing"),
        (["prompt", "reviw"], 2, "the server has no prompt 'reviw'; did you mean 'review'?\n"),
        (["prompt", "review"], 2, "'review' needs 'language'\n"),
        (["prompt", "review", "language=C", "stile=x"], 2, "'review' takes no argument 'stile'; did you mean 'style'?\n"),
        (["prompt", "review", "language:=3"], 2, "language: 3 is not of type 'string'\n"),
        (["prompt", "review", "--unchecked"], 5, ""),  # the server's own words
        (["complete", "review"], 2, "what to complete is missing: key=beginning\n"),
    ]  # fmt: skip  # one case on each line


def test_a_command_that_cannot_be_right_is_an_error(url: str, run: Run, subtests: pytest.Subtests) -> None:
    for (verb, *operands), code, error in ERRORS:
        with subtests.test(" ".join([verb, *operands])):
            done = run(verb, url, *operands)

            assert (done.code, done.out) == (code, "")
            assert done.err.startswith(f"mcp-host: {error}")
            assert code != 5 or done.err.endswith(" (-32602)\n")


def test_output_and_json_exclude_each_other(url: str, run: Run) -> None:
    done = run("read", url, "text:1", "--output", "x", "--json")

    error = "mcp-host: --output writes the contents, and --json prints a document: use one of them "
    assert (done.code, done.err.startswith(error)) == (2, True)


@pytest.mark.parametrize(
    ("operands", "contents"),
    [
        (["page://{book}/{page}", "book=Moby Dick", "page=7"], "page 7 of Moby Dick"),
        (["page://{book}/{page}", "book=a/b?", "page=7"], "page 7 of a/b?"),
        (["file:///{+path}", "path=a b/c?d"], "the file a b/c?d"),
    ],
)
def test_a_template_is_filled_in_with_escapes(operands: list[str], contents: str, url: str, run: Run) -> None:
    """The server matches {book} with one segment of the path, and decodes it."""
    assert run("read", url, *operands) == (0, contents, "")


def test_the_document_of_a_resource_is_the_servers(url: str, run: Run) -> None:
    done = run("read", url, "image:1", "--json")

    contents = [{"uri": "image:1", "mimeType": "image/png", "blob": "iVBORw0KGgoA/w=="}]
    assert (done.code, json.loads(done.out)["contents"]) == (0, contents)


# prompt


def test_a_prompt_is_printed_as_messages_with_their_roles(url: str, run: Run) -> None:
    code, out, err = run("prompt", url, "review", "language=Python")

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Review a program.",
        "    user          Review this Python.",
        "                  Be kind.",
        "    user          [image/png, 4 characters of base64]",
        r"    assistant     \x1b[2JGladly.",
    ]


def test_unchecked_arguments_are_left_to_the_server(url: str, run: Run) -> None:
    done = run("prompt", url, "review", "--unchecked", "language:=3")

    assert (done.code, "Review this 3." in done.out, done.err) == (0, True, "")


def test_a_prompt_may_have_no_description(run: Run) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "Hi."}}
    answers = {
        "prompts_list": {"result": {"prompts": [{"name": "p"}]}},
        "prompts_get": {"result": {"messages": [message]}},
    }

    assert run("prompt", "p", *scripted({"prompts": {}}, **answers)) == (0, "    user          Hi.\n", "")


# complete


def test_completions_are_lines_and_the_other_arguments_are_context(url: str, run: Run) -> None:
    lines = "python {'style': 'terse'}\npascal\\x1b {'style': 'terse'}\n"

    assert run("complete", url, "review", "language=p", "style=terse") == (0, lines, "")


def test_completions_of_a_template_may_be_some_of_many(url: str, run: Run) -> None:
    some = "".join([f"book {number}\n" for number in range(100)])

    more = "mcp-host: the server has more completions\n"
    assert run("complete", url, "page://{book}/{page}", "book=") == (0, some, more)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
@pytest.mark.parametrize("arguments", ["inspect", "inspect --json", "read image:1"])
def test_a_full_disk_is_told_in_one_sentence(
    arguments: str, url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb, *rest = arguments.split()
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        done = run(verb, url, *rest)

    assert done == (2, "", FULL)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
def test_nothing_else_is_told_when_the_process_ends(url: str) -> None:
    """Python flushes stdout once more."""
    command = [sys.executable, "-m", "mcp_host", "read", url, "image:1"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=IN_TIME, check=False)

    assert (done.returncode, done.stderr.decode()) == (2, FULL)
