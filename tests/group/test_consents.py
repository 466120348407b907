"""`ServerConsents`: what is kept of a person's consent, and what becomes of a file that cannot be used."""

from __future__ import annotations

import json
import pwd
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_host.errors import ConfigError
from mcp_host.group import ProposedServer, ServerConsents


def proposed(name: str = "a", digest: str = "1", path: str = "/projects/shop/.mcp.json") -> ProposedServer:
    return ProposedServer(
        name=name, path=Path(path), scope="project", kind="command", written="x", expanded=f"x {digest}", digest=digest
    )


def test_consents_are_kept_in_a_private_file_by_file_and_name(tmp_path: Path) -> None:
    consents = ServerConsents(tmp_path / "new" / "consents.json")
    assert (consents.servers(), consents.compared(proposed())) == ({}, (proposed(), False))
    for each in (proposed(), proposed("b"), proposed(path="/other")):
        consents.agree(each)

    again = ServerConsents(tmp_path / "new" / "consents.json")
    assert again.servers() == {"/projects/shop/.mcp.json": ["a", "b"], "/other": ["a"]}
    assert again.compared(proposed()) == (proposed(), True)
    changed, agreed = again.compared(proposed(digest="2"))
    assert (changed.previous, agreed) == ("x 1", False)
    assert stat.S_IMODE((tmp_path / "new" / "consents.json").stat().st_mode) == 0o600
    again.forget("/projects/shop/.mcp.json", "a", "unknown")
    again.forget("/other")
    again.forget("/unknown")
    assert consents.servers() == {"/projects/shop/.mcp.json": ["b"]}


def test_a_long_command_line_leaves_room_for_the_others(tmp_path: Path) -> None:
    """Of what was agreed to, only the beginning is shown again. The digest is of all of it."""
    file = tmp_path / "consents.json"
    consents, long = ServerConsents(file), replace(proposed(), expanded="\u00e9" * 1_000_000)
    consents.agree(long)
    size = file.stat().st_size
    kept = json.loads(file.read_text())
    kept["files"]["/old"] = {"a": {"digest": "1", "expanded": long.expanded}}  # of an earlier version
    file.write_text(json.dumps(kept))
    consents.agree(proposed("b"))

    assert size < 20_000
    assert file.stat().st_size < 40_000
    assert consents.compared(long) == (long, True)
    assert consents.compared(replace(long, digest="2"))[0].previous == "\u00e9" * 2000


def test_the_default_is_a_file_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ServerConsents().agree(proposed())

    assert repr(ServerConsents()) == f"ServerConsents('{tmp_path}/mcp-host/consents.json')"
    assert (tmp_path / "mcp-host" / "consents.json").is_file()


@pytest.mark.parametrize(("home", "folder"), [(None, "~"), ("home", "home")], ids=["none", "a relative one"])
def test_a_project_cannot_bring_consents_for_a_user_without_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None, folder: str
) -> None:
    """Such as that of a container, whose user id has no name."""
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    monkeypatch.chdir(tmp_path)
    ServerConsents(Path(folder, ".local/state/mcp-host/consents.json")).agree(proposed())

    assert ServerConsents().compared(proposed()) == (proposed(), False)


BROKEN = {
    "no JSON": ("{", "Expecting property name"),
    "nested too deeply": ("[" * 100_000, "recursion|Stack overflow"),  # the second since Python 3.14
    "a list": ("[]", "not of the form"),
    "another version": ('{"version": 2, "files": {}}', "not of the form"),
    "no files": ('{"version": 1}', "'files' is not a JSON object"),
    "a file that is a list": ('{"version": 1, "files": {"/x": []}}', "'/x' is not a JSON object"),
    "a consent without a digest": ('{"version": 1, "files": {"/x": {"a": {"expanded": "x"}}}}', "'a' has no digest"),
    "a digest that is a number": (
        json.dumps({"version": 1, "files": {"/x": {"a": {"digest": 1, "expanded": "x"}}}}),
        "'a' has no digest",
    ),
}


def test_a_file_with_something_else_is_no_consent_and_is_not_overwritten(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    path = tmp_path / "consents.json"
    for name, (text, reason) in BROKEN.items():
        path.write_text(text)
        consents = ServerConsents(path)
        with subtests.test(name):
            for use in (consents.servers, lambda: consents.compared(proposed()), lambda: consents.agree(proposed())):  # noqa: B023  # called at once
                with pytest.raises(ConfigError, match=re.escape(str(path)) + r": there are no consents .*" + reason):
                    use()
            assert path.read_text() == text


def test_a_file_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="the consents to servers cannot be read: Is a directory"):
        ServerConsents(tmp_path / "folder").servers()
    (tmp_path / "consents.json.lock").mkdir()
    with pytest.raises(ConfigError, match="the consents to servers cannot be saved: Is a directory"):
        ServerConsents(tmp_path / "consents.json").agree(proposed())
    with pytest.raises(TypeError, match="file is the path of a file, not int"):
        ServerConsents(7)  # type: ignore[arg-type]  # that is the test
