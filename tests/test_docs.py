"""What checks the docs finds what is wrong with a page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import check
import pages
import pictures
import pyte
import pytest
import snippets

CHECKS = (check.dead_links, check.unknown_targets, check.unknown_files, check.unknown_members, check.unknown_tests)


def page(folder: Path, text: str) -> pages.Page:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return pages.read(path)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("One call, from end to end", "one-call-from-end-to-end"),
        ("`mcp_host.errors`", "mcp_hosterrors"),
        ("Use a provider's SDK", "use-a-providers-sdk"),
        ("See [this](there.md) - now", "see-this---now"),
    ],
)
def test_a_heading_has_the_anchor_that_github_gives_it(heading: str, anchor: str) -> None:
    assert pages.slug(heading) == anchor


def test_headings_and_links_in_a_code_block_are_ignored(tmp_path: Path) -> None:
    read = page(tmp_path, "# One\n\n```sh\n# Two\n[three](four.md)\n```\n\n# One\n")

    assert read.anchors == {"one", "one-1"}
    assert list(read.links()) == []
    assert read.blocks == [pages.Block(3, "sh", "", "# Two\n[three](four.md)\n", "One")]


MISSING: list[tuple[str, str]] = [
    ("[a](nowhere.md)", "1: there is no nowhere.md"),
    ("# Here\n[a](#there)", "2: there is no heading for #there"),
    ('<img alt="a" src="nothing.svg">', "1: there is no nothing.svg"),
    ('<source media="(prefers-color-scheme: dark)" srcset="nothing.svg">', "1: there is no nothing.svg"),
    ("[a](page.md#there)", "1: there is no heading for page.md#there"),
    ("`make tea`", "1: there is no `make tea`"),
    ("```sh\nmake tea\n```", "1: there is no `make tea`"),
    ("`client/nothing.py`", "1: there is no file client/nothing.py"),
    ("`Client.nothing`", "1: Client has no nothing"),
    ("`tests/test_docs.py::test_tea`", "1: there is no test tests/test_docs.py::test_tea"),
    ("`tests/test_docs.py::page`", "1: there is no test tests/test_docs.py::page"),
    ("`tests/tea.py::test_tea`", "1: there is no test tests/tea.py::test_tea"),
]


def test_missing_names_are_found_with_their_lines(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text, problem in MISSING:
        with subtests.test(text=text):
            read = page(tmp_path, text)

            found = [line for one in CHECKS for line in one(read)]

            assert found == [f"{read.path}:{problem}"]


def test_existing_names_are_accepted(tmp_path: Path) -> None:
    text = (
        "# Here\n[a](#here) [b](https://nowhere.example) `make test` `client/client.py` `Client.call_tool` `tools/call`"
        " `tests/test_docs.py::test_existing_names_are_accepted`"
    )
    read = page(tmp_path, text)

    for one in CHECKS:
        assert list(one(read)) == []


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("- who?\n  - until 2025-11-25: `tests/a.py::test_a`\n  - 2026-07-28: `tests/b.py::test_b`\n", []),
        (
            "- who?\n  - until 2025-11-25: `tests/a.py::test_a`,\n    `tests/c.py::test_c`\n"
            "  - 2026-07-28: `tests/b.py::test_b`\n",
            [],
        ),
        ("- who?\n  - until 2025-11-25: `tests/a.py::test_a`\n", ["who?"]),
        ("- who?\n  - 2026-07-28: `tests/b.py::test_b`\n", ["who?"]),
        (
            "- why?\n  - until 2025-11-25: `tests/a.py::test_a`\n  - 2026-07-28: `tests/b.py::test_b`\n",
            ["who?", "why?"],
        ),
    ],
    ids=["both", "several", "only-before", "only-since", "another"],
)
def test_a_difference_between_the_eras_without_a_test_in_each_is_found(listed: str, found: list[str]) -> None:
    assert check.half_shown(f"| question | before | since |\n|---|---|---|\n| who? | you | I |\n\n{listed}") == found


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("- thieves: `tests/a.py::test_a`\n", []),
        ("- thieves: `tests/a.py::test_a`,\n  `tests/b.py::test_b`\n", []),
        ("- thieves: a guard\n", ["thieves"]),
        ("- thieves: `tests/a.py::test_a`\n- rain: `tests/a.py::test_a`\n", ["rain"]),
        ("", ["thieves"]),
    ],
    ids=["one", "several", "no test", "no row", "nothing"],
)
def test_a_threat_without_a_test_is_found(listed: str, found: list[str]) -> None:
    table = "| threat | what is done | what is left |\n|---|---|---|\n| thieves | a lock | the key |\n"

    assert check.unshown(f"# Here\n\n## Threats\n\n{table}\n## Tests\n\n{listed}") == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\n1 / 0\n```", "page.md:1: ZeroDivisionError"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "page.md:1: SnippetError: it prints\n    1\n"),
        ("```python\nx = 1\n```\n## Next\n```python\nx\n```", "page.md:5: NameError"),
        ("```python examples/hello_server.py\nprint(1)\n```", "page.md:1: SnippetError: the example file"),
        ("```console\n$ python -c 'raise SystemExit(3)'\n```", "page.md:1: SnippetError: python .* ended with code 3"),
        ("```console exits 3\n$ python -c ''\n```", "page.md:1: SnippetError: python .* ended with code 0"),
        ("```console\n$ python -c 'print(1)'\n2\n```", "page.md:1: SnippetError: it prints\n    1\n"),
    ],
)
def test_a_snippet_that_does_not_match_the_page_fails_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(snippets.SnippetError, match=problem):
        anyio.run(snippets.run_page, page(tmp_path, text))


def test_snippets_run_in_order_and_await(tmp_path: Path) -> None:
    text = """
```python said.py
print("said")
```

```console
$ python said.py
s...d
```

```console exits 3
$ python -c 'raise SystemExit(3)'
```

```python
async with Client(transport) as client:
    names = [tool.name for tool in await client.list_tools()]
```

```python
print(names[0])
```

```text
research
```
"""

    assert anyio.run(snippets.run_page, page(tmp_path, text)) == 5


def test_snippets_run_the_programs_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if another program, or none, is called "python" on the machine: in commands, and for the servers in code."""
    monkeypatch.setenv("PATH", str(tmp_path))
    text = f"""
```console
$ python -c 'import sys; print(sys.prefix)'
{sys.prefix}
```

```python
import shutil
print(shutil.which("python"))
```

```text
{Path(sys.executable).with_name("python")}
```
"""

    assert anyio.run(snippets.run_page, page(tmp_path, text)) == 2
    assert os.environ["PATH"] == str(tmp_path)


def test_a_picture_has_the_text_of_the_screen_in_its_columns_and_colors() -> None:
    screen = pyte.Screen(pictures.COLUMNS, 4)
    pyte.Stream(screen).feed("\r\n\x1b[36mits <name>\x1b[0m  \x1b[1mis\x1b[0m\r\n  | here ")
    rows = [[screen.buffer[y][x] for x in range(pictures.COLUMNS)] for y in range(3)]

    drawn = pictures.draw(rows, pictures.THEMES["dark"])

    assert '<text x="18" y="32" textLength="84" class="cyan">its &lt;name&gt;</text>' in drawn
    assert '<text x="118.8" y="32" textLength="16.8" class="bold">is</text>' in drawn
    assert '<text x="34.8" y="51" textLength="50.4">| here</text>' in drawn
    assert drawn.startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 708 74"')


def test_a_picture_that_is_out_of_date_or_that_no_example_shows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {"a.svg": "same", "b.svg": "old", "c.svg": "left"}.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    monkeypatch.setattr(pictures, "pictures", lambda: [("a.svg", "same"), ("b.svg", "new"), ("d.svg", "missing")])

    assert [problem.partition(":")[0] for problem in check.stale_pictures()] == [
        "docs/pictures/b.svg",
        "docs/pictures/c.svg",
        "docs/pictures/d.svg",
    ]
