"""Write docs/pictures/*.svg, light and dark: ``python docs/pictures.py``.

Each is the screen of an example, of the command, or of a shell, in a pseudo-terminal, at a moment when it waits for a key.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import dropwhile, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeAlias

import pyte
from pyte.screens import Char

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"

COLUMNS = 80
ROWS = 200  # more than an example writes, so nothing scrolls
TIMEOUT = 60.0  # seconds without output; a cold machine takes some to start

Row: TypeAlias = Sequence[Char]


class Step(NamedTuple):
    """Wait until the program asks with *prompt*, take a *picture* of what came since the last one, and press *keys*."""

    prompt: str
    keys: str
    picture: str = ""


FIELD, SEND, MODEL = "> ", "Send this? [y/e/v/n/c] ", "May your model answer? [y/a/s/v/N] "

EXAMPLES: Mapping[str, Sequence[Step]] = {
    "asking_the_user.py": [
        Step(FIELD, "Sea Otter\n"),
        Step(FIELD, "2\n"),
        Step(FIELD, "tomorrow\n"),
        Step(FIELD, "2026-11-22\n"),
        Step(FIELD, "\n", "form"),
        Step(SEND, "y\n", "form-summary"),
        Step(MODEL, "y\n", "approval"),
        Step(MODEL, "y\n", "approval-second-turn"),
    ],
    "play_ttt --mark O": [Step(FIELD, "", "play-ttt")],
}
"""The examples, with their arguments, and what is typed into each."""

TOOL = "May your client call it? [y/s/v/N] "
COMMANDS: Mapping[str, Sequence[Step]] = {
    "chat --config mcp.json --approve-servers --model arithmetic --timeout 60": [
        Step(FIELD, "What is 12.5 * 4?\n"),
        Step(TOOL, "y\n"),
        Step(FIELD, "", "chat-servers"),
    ]
}
"""The arguments of ``mcp-host``, in a folder with `FILES`, and what is typed into each."""

SHELL = ["sh", "-c", 'while printf "$ " && read -r line; do eval "$line"; done']
TYPED = [Step("$ ", "mcp-host servers list --all\n"), Step("$ ", "", "servers")]
"""What is typed into the shell, whose user's folder has `FILES`."""

FILES = {
    ".config/mcp-host/mcp.json": """{"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${HOME}/notes"]},
        "github": {"url": "https://api.githubcopilot.com/mcp/", "disabled": true}}}""",
    ".codeium/windsurf/mcp_config.json": """{"mcpServers": {
        "weather": {"serverUrl": "https://weather.example/mcp?api_key=abcdef123456", "autoApprove": ["*"]},
        "old": {"type": "sse", "url": "https://old.example/sse"}}}""",
    "mcp.json": """{"mcpServers": {
        "calculator": {"command": "python", "args": ["calculator.py"]},
        "notes": {"command": "python", "args": ["notes.py"]},
        "files": {"command": "no-such-program"}
    }}""",
    "calculator.py": """
from mcp_host.testing import Server
server = Server("calculator", version="2.1.0")

@server.tool
def multiply(a: float, b: float) -> float:
    "Multiply two numbers."
    return a * b

server.run_stdio()
""",
    "notes.py": """
from mcp_host.testing import Server
server = Server("Notes of Ada", version="1.4.2")
server.tool(lambda text: text, name="add_note")
server.run_stdio()
""",
}


def pictures() -> Iterator[tuple[str, str]]:
    """The name and the content of each file."""
    for example, steps in EXAMPLES.items():
        program, *arguments = example.split()
        yield from themes(run([sys.executable, str(ROOT / "examples" / program), *arguments], steps))
    with TemporaryDirectory() as folder:
        for name, text in FILES.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for words, steps in COMMANDS.items():
            yield from themes(run([sys.executable, "-m", "mcp_host", *words.split()], steps, folder))
        yield from themes(run(SHELL, TYPED, folder))


def themes(screens: Iterable[tuple[str, Sequence[Row]]]) -> Iterator[tuple[str, str]]:
    """Each of the *screens* in all colors."""
    for name, rows in screens:
        for theme, colors in THEMES.items():
            yield f"{name}-{theme}.svg", draw(rows, colors)


# The program


def run(
    command: Sequence[str], steps: Sequence[Step], folder: str | None = None
) -> Iterator[tuple[str, Sequence[Row]]]:
    """The name of each picture, and its rows. The cursor is behind the last one. What is kept is kept in *folder*, if there is one."""
    keyboard, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (ROWS, COLUMNS))
    left_out = ("NO_COLOR", "COLUMNS", "LC_ALL", "XDG_CONFIG_HOME", "CODEX_HOME")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    if folder is not None:
        inherited["HOME"] = folder
        inherited["XDG_STATE_HOME"] = folder
        inherited["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**inherited, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        start_new_session=True,
    ) as process:
        os.close(terminal)
        screen = pyte.Screen(COLUMNS, ROWS)
        first = 0
        try:
            for step in steps:
                wait_for(step.prompt, keyboard, screen)
                if step.picture:
                    last = screen.cursor.y + 1
                    yield step.picture, [[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(first, last)]
                    first = last
                os.write(keyboard, step.keys.encode())
        finally:
            process.kill()
            os.close(keyboard)


def wait_for(prompt: str, keyboard: int, screen: pyte.Screen) -> None:
    """Read until the cursor is behind *prompt*. It may be there already, behind the one before.

    Raises:
        TimeoutError: The program falls silent before.
    """
    stream = pyte.ByteStream(screen)
    row = ""
    while row != prompt:
        if not select.select([keyboard], [], [], TIMEOUT)[0]:
            raise TimeoutError(f"no {prompt!r} on the screen, but {row!r}")
        stream.feed(os.read(keyboard, 65_536).replace(b"\x1b[2m", b"\x1b[90m"))  # pyte knows gray, but not dim
        row = screen.display[screen.cursor.y][: screen.cursor.x]


# The picture

CELL, LINE, SIZE, BASELINE, MARGIN = 8.4, 19, 14, 14, 18
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {
        "background": "#ffffff",
        "frame": "#d1d9e0",
        "text": "#1f2328",
        "brightblack": "#818b98",
        "cyan": "#0a6e78",
        "brown": "#9a6700",
    },
    "dark": {
        "background": "#0d1117",
        "frame": "#3d444d",
        "text": "#e6edf3",
        "brightblack": "#7d8590",
        "cyan": "#5ccfd6",
        "brown": "#e3b341",
    },
}
"""Those of the text have pyte's names; "brown" is what others call yellow."""

TEXT_COLORS = ("brightblack", "cyan", "brown")


def draw(rows: Sequence[Row], colors: Mapping[str, str]) -> str:
    """An SVG with the text as text. In any font each piece takes its columns."""
    rows = list(dropwhile(lambda row: not text_of(row), rows))
    width, height = COLUMNS * CELL + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" height="{height}">',
        f"<style>text{{font:{SIZE}px {FONTS};fill:{colors['text']};white-space:pre}}",
        *(f".{name}{{fill:{colors[name]}}}" for name in TEXT_COLORS),
        ".bold{font-weight:600}</style>",
        f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8" '
        f'fill="{colors["background"]}" stroke="{colors["frame"]}"/>',
    ]
    for number, row in enumerate(rows):
        parts += [piece.element(MARGIN + number * LINE + BASELINE) for piece in pieces(row)]
    x, y = MARGIN + (len(text_of(rows[-1])) + 1) * CELL, MARGIN + (len(rows) - 1) * LINE
    parts.append(f'<rect x="{x:g}" y="{y}" width="{CELL}" height="{LINE}" fill="{colors["text"]}" opacity=".6"/>')
    return "\n".join([*parts, "</svg>", ""])


def text_of(row: Row) -> str:
    return "".join([char.data for char in row]).rstrip()


class Piece(NamedTuple):
    """Characters of one style that stand side by side."""

    column: int
    text: str
    classes: str

    def element(self, baseline: int) -> str:
        x, length = MARGIN + self.column * CELL, len(self.text) * CELL
        classes = f' class="{self.classes}"' if self.classes else ""
        return (
            f'<text x="{x:g}" y="{baseline}" textLength="{length:g}"{classes}>{escape(self.text, quote=False)}</text>'
        )


def pieces(row: Row) -> Iterator[Piece]:
    """The pieces of one row, without the spaces around each."""
    for classes, group in groupby(enumerate(row), key=lambda cell: style(cell[1])):
        cells = list(group)
        text = "".join([char.data for _, char in cells])
        if text.strip():
            yield Piece(cells[0][0] + len(text) - len(text.lstrip()), text.strip(), classes)


def style(char: Char) -> str:
    return " ".join(filter(None, [char.fg if char.fg in TEXT_COLORS else "", "bold" * char.bold]))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    for name, content in pictures():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
