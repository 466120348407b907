"""Where hosts keep their files, whose they are, and which of two servers of one name is taken."""

from __future__ import annotations

import json
import pwd
from pathlib import Path

import pytest

from mcp_host.config import DIALECTS, FoundFile, Scope, find_servers, merge_servers, read_servers, user_file
from mcp_host.config.places import PLACES, place_of
from mcp_host.errors import ConfigError
from tests.config.described import written

HOME = {
    "linux": {
        *(".claude.json", ".config/Claude/claude_desktop_config.json", ".config/Code/User/mcp.json"),
        *(".copilot/mcp-config.json", ".cursor/mcp.json", ".codeium/windsurf/mcp_config.json", ".config/zed/settings.json"),
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        *(".cline/mcp.json", ".gemini/settings.json", ".lmstudio/mcp.json", ".config/goose/config.yaml"),
        ".config/mcp-host/mcp.json",
        *(".codex/config.toml", ".config/opencode/opencode.json", ".config/opencode/opencode.jsonc", ".mcp-inspector/mcp.json"),
    },
    "darwin": {
        *("Library/Application Support/Claude/claude_desktop_config.json", "Library/Application Support/Code/User/mcp.json"),
        *(".config/zed/settings.json", ".config/goose/config.yaml", ".config/mcp-host/mcp.json"),
    },
    "win32": {
        *("AppData/Roaming/Claude/claude_desktop_config.json", "AppData/Roaming/Code/User/mcp.json"),
        *("AppData/Roaming/Zed/settings.json", "AppData/Roaming/Block/goose/config/config.yaml"),
        "AppData/Roaming/mcp-host/mcp.json",
    },
}  # fmt: skip
SYSTEM = {
    "linux": {"etc/claude-code/managed-mcp.json", "etc/gemini-cli/settings.json"},
    "darwin": {
        "Library/Application Support/ClaudeCode/managed-mcp.json",
        "Library/Application Support/GeminiCli/settings.json",
    },
    "win32": {"Program Files/ClaudeCode/managed-mcp.json", "ProgramData/gemini-cli/settings.json"},
}
PROJECT = {
    *(".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", ".zed/settings.json", ".gemini/settings.json"),
    *(".codex/config.toml", "opencode.json", "opencode.jsonc", "mcp.json"),
}


def test_the_files_of_the_hosts_on_each_platform_are_found_if_they_are_there(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for platform, paths in HOME.items():
        with subtests.test(platform):
            home, root, project = (tmp_path / platform / name for name in ("home", "root", "project"))
            for folder, names in ((home, paths), (root, SYSTEM[platform]), (project, PROJECT)):
                for name in names:
                    written(folder, name, "{}")

            found = find_servers(home=home, project=project, platform=platform, environment={}, root=root)
            without = find_servers(home=home, platform=platform, environment={}, root=root)

            places = {str(file.path.relative_to(tmp_path / platform)): file.scope for file in found if not file.section}
            assert places == {
                **{f"home/{name}": "user" for name in paths},
                **{f"root/{name}": "managed" for name in SYSTEM[platform]},
                **{f"project/{name}": "project" for name in PROJECT},
            }
            assert list(dict.fromkeys(file.scope for file in found)) == (
                ["managed", "local", "project", "user"] if platform == "linux" else ["managed", "project", "user"]
            )
            assert without == [file for file in found if file.scope in ("managed", "user")]
            for file in found:
                assert place_of(file.path, home).dialect in (file.dialect, None)


def test_the_environment_says_where_some_folders_are(tmp_path: Path) -> None:
    for name in ("xdg/zed/settings.json", "roaming/Claude/claude_desktop_config.json", "codex/config.toml"):
        written(tmp_path, name, "")
    environment = {"XDG_CONFIG_HOME": "xdg", "APPDATA": "roaming", "CODEX_HOME": "codex"}
    environment = {name: str(tmp_path / folder) for name, folder in environment.items()}

    def found(platform: str) -> list[str]:
        files = find_servers(home=tmp_path / "home", platform=platform, environment=environment, root=tmp_path)
        return [str(file.path.relative_to(tmp_path)) for file in files]

    assert found("linux") == ["xdg/zed/settings.json", "codex/config.toml"]
    assert found("win32") == ["roaming/Claude/claude_desktop_config.json", "codex/config.toml"]
    for platform in ("linux", "win32"):  # relative ones could be within a project
        relative = dict.fromkeys(environment, ".config")
        assert user_file(home=tmp_path, platform=platform, environment=relative) == user_file(
            home=tmp_path, platform=platform, environment={}
        )
    written(tmp_path, "home/.codex/config.toml", "")
    [codex] = find_servers(home=tmp_path / "home", platform="linux", environment={"CODEX_HOME": "codex"}, root=tmp_path)
    assert codex.path == tmp_path / "home/.codex/config.toml"


def test_this_machine_is_looked_at_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    path = written(tmp_path, ".cursor/mcp.json", "{}")

    assert FoundFile(path, "cursor", "user") in find_servers()
    assert all(file.scope == "managed" for file in find_servers(platform="win32") if file.path != path)


@pytest.mark.parametrize(("home", "folder"), [(None, "~"), ("home", "home")], ids=["none", "a relative one"])
def test_no_file_of_a_project_is_that_of_a_user_without_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None, folder: str
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, f"{folder}/.config/mcp-host/mcp.json", '{"mcpServers": {"a": {"command": "a"}}}')

    assert [place_of(file).scope, place_of(file.relative_to(tmp_path)).scope] == [None, None]
    assert user_file().path == Path("/.config/mcp-host/mcp.json")
    assert file not in [found.path.absolute() for found in find_servers()]


def test_in_a_folder_that_was_deleted_no_relative_path_leads_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert [file for file in find_servers(home=tmp_path, project=".") if file.scope != "managed"] == []
    with pytest.raises(ConfigError, match=r"^mcp\.json: there is no such file$"):
        read_servers("mcp.json")


def test_claude_code_keeps_servers_for_one_project_in_the_users_file(tmp_path: Path) -> None:
    project, other = str(tmp_path / "shop"), str(tmp_path / "other")
    local = {"a": {"command": "local", "cwd": "${HERE:-x}"}}
    data = {"mcpServers": {"a": {"command": "user"}}, "projects": {project: {"mcpServers": local}, other: {}}}
    path = written(tmp_path, ".claude.json", json.dumps(data))

    def read(folder: str) -> list[tuple[str | None, str]]:
        files = find_servers(home=tmp_path, project=folder, environment={}, root=tmp_path / "none")
        assert [file.path for file in files] == [path, path]
        return [(server.source.scope, server.shown) for file in files for server in read_servers(file).servers]

    assert read(project) == [("local", "local"), ("user", "user")]
    assert read(other) == read(str(tmp_path / "none")) == [("user", "user")]
    [found, _] = find_servers(home=tmp_path, project=project, environment={}, root=tmp_path / "none")
    assert read_servers(found).servers[0].source.project == Path(project)


def test_a_file_is_the_users_or_the_administrators_only_where_this_machine_has_such_files(
    subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a path tells no more than its dialect: a project may have folders of any name."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    home = tmp_path / "home"
    rows: list[tuple[str, str | None, Scope | None]] = [
        ("home/.cursor/mcp.json", "cursor", "user"),
        ("work/.cursor/mcp.json", "cursor", "project"),
        ("home/.gemini/settings.json", "gemini-cli", "user"),
        ("home/project/.gemini/settings.json", "gemini-cli", "project"),
        ("home/.config/opencode/opencode.json", "opencode", "user"),
        ("work/opencode.json", "opencode", "project"),
        ("work/opencode/opencode.json", "opencode", "project"),
        ("work/opencode/opencode.jsonc", "opencode", "project"),
        ("home/.claude.json", "claude-code", "user"),
        ("work/.mcp.json", "claude-code", "project"),
        ("work/.claude.json", "claude-code", None),
        ("work/.lmstudio/mcp.json", "lm-studio", None),
        ("home/.config/zed/settings.json", "zed", "user"),
        ("work/zed/settings.json", "zed", None),
        ("/etc/claude-code/managed-mcp.json", "claude-code", "managed"),
        ("work/etc/claude-code/managed-mcp.json", "claude-code", None),
        ("work/claude_desktop_config.json", "claude-desktop", None),
        ("work/mcp.json", None, None),
        ("work/settings.json", None, None),
    ]
    for name, dialect, scope in rows:
        with subtests.test(name):
            path = tmp_path / name

            assert place_of(path, home) == FoundFile(path, dialect, scope)


def test_the_folder_of_a_project_is_that_of_its_file_or_the_one_above(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for name, project in (
        (".mcp.json", "."),
        (".vscode/mcp.json", "."),
        (".cursor/mcp.json", "."),
        (".dotfiles/.mcp.json", ".dotfiles"),
        (".dotfiles/.cursor/mcp.json", ".dotfiles"),
        (".other/mcp.json", "."),
        (".opencode/opencode.json", "."),
        ("other/mcp.json", "other"),
    ):
        with subtests.test(name):
            path = written(tmp_path, name, '{"mcpServers": {"a": {"command": "a"}}}')

            assert read_servers(path, scope="project").servers[0].source.project == tmp_path / project
            assert read_servers(path, scope="user").servers[0].source.project is None


def test_of_two_servers_with_one_name_that_of_the_narrower_scope_is_taken(tmp_path: Path) -> None:
    def file(name: str, *servers: str) -> Path:
        return written(tmp_path, name, json.dumps({"mcpServers": {each: {"command": name} for each in servers}}))

    user = read_servers(file("user.json", "a", "b", "c", "d"), scope="user")
    later = read_servers(file("later.json", "d", "e"), scope="user")
    project = read_servers(file("project.json", "a", "b", "x"), scope="project")
    local = read_servers(file("local.json", "a"), scope="local")
    unknown = read_servers(file("unknown.json", "x", "e"))
    managed = read_servers(file("managed.json", "c"), scope="managed")

    servers, warnings = merge_servers([unknown, user, later, project, local, managed])

    assert {server.name: server.shown for server in servers} == {
        "c": "managed.json",
        "a": "local.json",
        "b": "project.json",
        "x": "project.json",
        "d": "user.json",
        "e": "later.json",
    }
    lost = [("a", "project", "local"), ("a", "user", "local"), ("b", "user", "project"), ("c", "user", "managed")]
    lost += [("d", "later", "user"), ("x", "unknown", "project"), ("e", "unknown", "later")]

    def where(file: str) -> str:
        scope = {"later": " (user)", "unknown": ""}.get(file, f" ({file})")
        return f"{tmp_path}/{file}.json{scope}"

    assert list(warnings) == [
        f"'{name}' is not taken from {where(file)}: it is taken from {where(other)}" for name, file, other in lost
    ]


def test_a_file_that_is_given_twice_is_taken_once_and_two_parts_of_one_file_are_told_apart(tmp_path: Path) -> None:
    """Claude Code has the servers of the user, and those of each project, in one file."""
    servers = {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}
    path = written(tmp_path, ".claude.json", json.dumps({**servers, "projects": {"/p": servers}}))
    user = FoundFile(path, "claude-code", "user")
    local = FoundFile(path, "claude-code", "local", ("projects", "/p"))

    taken, twice = merge_servers(map(read_servers, [user, user]))
    _, parts = merge_servers(map(read_servers, [user, local]))

    assert taken == read_servers(user).servers
    assert twice == (f"{path} is given more than once: its servers are taken once",)
    assert parts == tuple(
        f"'{name}' is not taken from {path} (user): it is taken from {path} (local)" for name in ("a", "b")
    )


def test_each_place_is_of_a_dialect_that_exists() -> None:
    assert {place.dialect for place in PLACES} <= DIALECTS.keys()
