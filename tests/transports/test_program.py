"""What a command line runs, told without an argument that may be a secret."""

from __future__ import annotations

import pytest

from mcp_host import Stdio

PROGRAMS: list[tuple[list[str], str]] = [
    (["github-mcp-server", "hunter2"], "github-mcp-server"),
    (["/opt/bin/github-mcp-server", "--token", "hunter2"], "github-mcp-server"),
    (["python", "server.py", "hunter2"], "python server.py"),
    (["/usr/bin/python3.12", "-u", "-X", "utf8", "weather/server.py"], "python3.12 weather/server.py"),
    (["python", "-m", "weather", "--key=hunter2"], "python -m weather"),
    (["python", "-c", "key = 'hunter2'"], "python"),
    (["python", "-m"], "python"),
    (["python"], "python"),
    (["node", "/home/ann/dev/github/build/index.js"], "node …/github/build/index.js"),
    (["node", "--max-old-space-size=99", "/srv/github/index.js"], "node /srv/github/index.js"),
    (["npx", "-y", "@scope/server-github@1.2", "hunter2"], "npx @scope/server-github@1.2"),
    (["npx", "KEY=hunter2", "server"], "npx"),
    (["uvx", "server==1.2"], "uvx server==1.2"),
    (["npx.cmd", "-y", "server"], "npx.cmd server"),
    (["npx", "--unknown", "hunter2", "server"], "npx"),
    (["npm", "exec", "--", "@scope/server"], "npm @scope/server"),
    (["npm", "start"], "npm"),
    (["uvx", "--from", "git+https://hunter2@github.com/x/y", "server@1.2"], "uvx server@1.2"),
    (["uvx", "git+https://hunter2@github.com/x/y"], "uvx"),
    (["uv", "--directory", "/srv/weather", "run", "weather.py"], "uv weather.py"),
    (["uv", "tool", "run", "mcp-server-git"], "uv mcp-server-git"),
    (["uv", "run", "--with", "mcp[cli]", "-m", "weather"], "uv -m weather"),
    (
        [
            "docker",
            "run",
            "-i",
            "--rm",
            "-e",
            "TOKEN=hunter2",
            "--env=KEY=hunter2",
            "ghcr.io/github/github-mcp-server:1",
        ],
        "docker ghcr.io/github/github-mcp-server:1",
    ),
    (["docker", "run", "--secret", "hunter2", "image"], "docker"),
    (["deno", "run", "--allow-net", "server.ts"], "deno server.ts"),
    (["java", "-jar", "/opt/server.jar"], "java -jar /opt/server.jar"),
    (["python", "key hunter2"], "python"),
    (["python", "a" * 70], f"python …{'a' * 63}"),
]


def test_the_name_of_a_stdio_server_is_what_it_runs_and_has_no_secret(subtests: pytest.Subtests) -> None:
    for command, name in PROGRAMS:
        with subtests.test(command=command):
            assert Stdio(command).name == name


def test_a_script_is_named_with_its_folder_and_the_identity_is_as_ever(subtests: pytest.Subtests) -> None:
    for cwd, name in [("/srv/github", "python github/server.py"), (None, "python server.py")]:
        with subtests.test(cwd=cwd):
            assert Stdio(["python", "server.py"], cwd=cwd).name == name

    assert Stdio(["python", "/srv/server.py"], cwd="/srv/github").name == "python /srv/server.py"
    assert Stdio(["python", "server.py"]).identity == "python 6af955799d0afb65"
