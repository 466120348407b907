"""``call --output``: the images, audio and resources of a result, in files whose names a server has not chosen freely."""

from __future__ import annotations

from base64 import b64encode
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from mcp_host.cli.files import MAX_NAME, extension, file_name
from mcp_host.testing import Server, ToolError
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from tests.cli.bounded import main
from tests.cli.conftest import Run
from tests.cli.terminals import Terminal

PNG, WAV, PDF = b"\x89PNG\r\n\x1a\n\x00\xff", b"RIFF\x00", b"%PDF-\xff"

server = Server("studio")


def base64(data: bytes) -> str:
    return b64encode(data).decode()


PICTURE = ImageContent(data=base64(PNG), mime_type="image/png")
REPORT = EmbeddedResource(resource=BlobResourceContents(uri="file:///out/../report.pdf", blob=base64(PDF)))


@server.tool
def everything() -> list[TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink]:
    sound = AudioContent(data=base64(WAV), mime_type="audio/wav; rate=8000")
    notes = EmbeddedResource(resource=TextResourceContents(uri="notes:", text="Grüße"))
    return [TextContent(text="done"), PICTURE, PICTURE, sound, REPORT, notes, ResourceLink(uri="a:b", name="b")]


@server.tool
def picture() -> list[TextContent | ImageContent]:
    return [TextContent(text="a caption"), PICTURE]


@server.tool
def broken() -> list[ImageContent]:
    return [ImageContent(data="A\x1bAA", mime_type="image/png"), PICTURE]


@server.tool
def text() -> str:
    return "only text"


@server.tool
def fail() -> str:
    raise ToolError("no paper")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_folder_gets_a_file_for_each_part_and_keeps_those_that_it_has(url: str, run: Run, folder: Path) -> None:
    out = folder / "out"

    done = run("call", url, "everything", "--output", "out/")

    assert done == (
        0,
        "done\n[link to a:b]\n",
        "mcp-host: wrote out/image.png (10 bytes)\n"
        "mcp-host: wrote out/image-2.png (10 bytes)\n"
        "mcp-host: wrote out/audio.wav (5 bytes)\n"
        "mcp-host: wrote out/report.pdf (6 bytes)\n"
        "mcp-host: wrote out/resource.txt (7 bytes)\n",
    )
    first = {
        "audio.wav": WAV,
        "image-2.png": PNG,
        "image.png": PNG,
        "report.pdf": PDF,
        "resource.txt": b"Gr\xc3\xbc\xc3\x9fe",
    }
    assert files(out) == first

    (out / "image-3.png").symlink_to(folder / "elsewhere")  # to a file that does not exist
    assert run("call", url, "picture", "-o", "out") == (
        0,
        "a caption\n",
        "mcp-host: wrote out/image-4.png (10 bytes)\n",
    )
    assert not (folder / "elsewhere").exists()


def test_a_file_gets_the_first_part_and_the_others_have_numbers(url: str, run: Run, folder: Path) -> None:
    (folder / "my.png").write_bytes(b"old")

    done = run("call", url, "everything", "--output", "my.png")

    assert done.err.splitlines()[:2] == ["mcp-host: replaced my.png (10 bytes)", "mcp-host: wrote my-2.png (10 bytes)"]
    assert files(folder) == {
        "my-2.png": PNG,
        "my-3.png": WAV,
        "my-4.png": PDF,
        "my-5.png": b"Gr\xc3\xbc\xc3\x9fe",
        "my.png": PNG,
    }


def test_stdout_gets_one_part_and_stderr_the_text(
    url: str, folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["call", url, "picture", "--output", "-"]) == 0

    assert capfdbinary.readouterr() == (PNG, b"  | a caption\n")


OUTCOMES: list[tuple[str, str, int, str, str]] = [
    ("a part that is not base64", "broken -o .", 6, "", "mcp-host: wrote image.png (10 bytes)\nmcp-host: the contents of 'image.png' are not base64: Only base64 data is allowed\n"),
    ("nothing for a folder", "text -o .", 0, "only text\n", "mcp-host: the result has no image, audio or resource to write\n"),
    ("nothing for a file", "text -o x.png", 2, "only text\n", "mcp-host: the result has no image, audio or resource to write\n"),
    ("much for stdout", "everything -o -", 2, "", "  | done\n  | [link to a:b]\nmcp-host: the result has 5 images, audio and resources: write them to a folder\n"),
    ("no such folder", "picture -o no/such/x.png", 2, "a caption\n", "mcp-host: cannot write the contents: [Errno 2] No such file or directory: 'no/such/x.png'\n"),
    ("a failed tool", "fail -o x.png", 1, "", "mcp-host: the tool reported an error\n  | no paper\n"),
]  # fmt: skip  # one case on each line


def test_the_text_of_a_result_is_not_lost_with_a_file(
    url: str, run: Run, folder: Path, subtests: pytest.Subtests
) -> None:
    for case, words, code, out, err in OUTCOMES:
        with subtests.test(case):
            assert run("call", url, *words.split()) == (code, out, err)


def test_a_terminal_gets_no_image(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_stdout(Terminal()) as terminal:
        assert main(["call", url, "picture", "-o", "-"]) == 2

    hint = "mcp-host: 'image.png' is no text (image/png, 10 bytes): use --output FILE, or a pipe\n"
    assert (terminal.getvalue(), capsys.readouterr().err) == ("", f"  | a caption\n{hint}")


NAMES = [
    ("file:///a/report.pdf", None, "report.pdf"),
    ("file:///a/report.pdf?version=2#page", None, "report.pdf"),
    ("file:///a/../../etc/passwd", None, "passwd.bin"),
    ("file:///a/%2e%2e%2f%2e%2e%2fb.png", None, "b.png"),
    (r"C:\Windows\evil.txt", None, "evil.txt"),
    ("file:///home/.bashrc", None, "bashrc.bin"),
    ("x:/..", "text/plain", "resource.txt"),
    ("ui://widget/", "text/html;profile=mcp-app", "resource.html"),
    ("ui://widget/chart", "text/html", "chart.html"),
    ("file:///a/nul.txt", None, "resource-nul.txt"),
    ("file:///a/COM1", "text/plain", "resource-COM1.txt"),
    ("file:///a/Grüße 1.md", None, "Grüße-1.md"),
    ("file:///a/\x1b[2J\u202egnp.exe", None, "2J-gnp.exe"),
    ("file:///a/x\0.png", None, "x-.png"),
    ("http://[", None, "resource.bin"),
    ("", None, "resource.bin"),
    (f"file:///{'n' * 999}.png", None, f"{'n' * (MAX_NAME - 4)}.png"),
]


def test_the_name_of_a_resource_is_a_harmless_one_in_the_folder(subtests: pytest.Subtests) -> None:
    for uri, kind, name in NAMES:
        with subtests.test(ascii(uri)[:40]):
            assert file_name(uri, kind) == name


def test_a_file_has_the_extension_of_its_type() -> None:
    kinds = (
        "image/png",
        "image/jpeg",
        "IMAGE/JPG",
        "image/svg+xml",
        "audio/mpeg",
        "text/plain; charset=utf-8",
        "a/b",
        "../x",
        None,
    )

    assert list(map(extension, kinds)) == [".png", ".jpg", ".jpg", ".svg", ".mp3", ".txt", ".bin", ".bin", ".bin"]
