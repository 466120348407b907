"""Files as people have them, in each dialect: each describes the servers that a host would make by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_host import Stdio, StreamableHttp
from mcp_host.config import ToolFilter
from mcp_host.config.fields import NO_APPROVAL, NO_SANDBOX
from tests.config.described import File, Server, comparable, read

FILES = [
    File(
        "claude_desktop_config.json",
        """
        {"globalShortcut": "Ctrl+Space", "mcpServers": {
            "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/u/docs"]},
            "github": {"command": "docker", "args": ["run", "-i", "--rm", "-e", "GITHUB_TOKEN", "ghcr.io/github/mcp"],
                       "env": {"GITHUB_TOKEN": "ghp_literal"}}}}
        """,
        "claude-desktop",
        [
            Server(
                "filesystem",
                Stdio(["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/u/docs"]),
            ),
            Server(
                "github",
                Stdio(
                    ["docker", "run", "-i", "--rm", "-e", "GITHUB_TOKEN", "ghcr.io/github/mcp"],
                    env={"GITHUB_TOKEN": "ghp_literal"},
                ),
            ),
        ],
    ),
    File(
        ".mcp.json",
        """
        {"mcpServers": {
            "db": {"command": "${TOOLS}/db-mcp", "args": ["--port", "${DB_PORT:-5432}"], "env": {"KEY": "${TOKEN}"}},
            "api": {"type": "http", "url": "https://api.example.com/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 30000}}}
        """,
        "claude-code",
        [
            Server("db", Stdio(["/opt/tools/db-mcp", "--port", "5432"], env={"KEY": "t0k3n"})),
            Server(
                "api",
                StreamableHttp("https://api.example.com/mcp", headers={"Authorization": "Bearer t0k3n"}),
                timeout=30,
            ),
        ],
        scope="project",
    ),
    File(
        ".vscode/mcp.json",
        """
        {
            // asked once
            "inputs": [
                {"type": "promptString", "id": "key", "description": "API key", "password": true},
                {"type": "pickString", "id": "region", "options": ["eu", "us"]},
            ],
            "servers": {
                "playwright": {"command": "npx", "args": ["-y", "@playwright/mcp@latest"]}, /* no type */
                "search": {
                    "type": "stdio", "command": "${workspaceFolder}/bin/search", "args": ["--region=${input:region}"],
                    "env": {"API_KEY": "${input:key}", "CACHE": "${userHome}/.cache"}, "sandboxEnabled": true,
                },
                "docs": {"type": "http", "url": "https://docs.example.com/${input:region}/mcp"},
            },
        }
        """,
        "vscode",
        [
            Server("playwright", Stdio(["npx", "-y", "@playwright/mcp@latest"])),
            Server(
                "search",
                Stdio(["/work/shop/bin/search", "--region=eu"], env={"API_KEY": "answer-1", "CACHE": "/home/u/.cache"}),
                warnings=(f"sandboxEnabled: {NO_SANDBOX}",),
            ),
            Server("docs", StreamableHttp("https://docs.example.com/eu/mcp")),
        ],
        scope="project",
    ),
    File(
        ".codex/config.toml",
        """
        model = "o9"

        [mcp_servers.context7]
        command = "npx"
        args = ["-y", "@upstash/context7-mcp"]
        env_vars = ["TOKEN", "NOT_THERE", { name = "PORT", source = "local" }]
        startup_timeout_sec = 20
        tool_timeout_sec = 45.5
        enabled_tools = ["resolve", "docs"]

        [mcp_servers.context7.env]
        MODE = "fast"

        [mcp_servers.figma]
        url = "https://mcp.figma.com/mcp"
        bearer_token_env_var = "TOKEN"
        http_headers = { "X-Region" = "eu" }
        env_http_headers = { "X-Port" = "PORT" }
        default_tools_approval_mode = "approve"
        """,
        "codex",
        [
            Server(
                "context7",
                Stdio(["npx", "-y", "@upstash/context7-mcp"], env={"TOKEN": "t0k3n", "PORT": "8931", "MODE": "fast"}),
                timeout=45.5,
                connect_timeout=20,
                tools=ToolFilter(frozenset({"resolve", "docs"})),
                warnings=("env.NOT_THERE: it is left out, since the environment has no such variable",),
            ),
            Server(
                "figma",
                StreamableHttp(
                    "https://mcp.figma.com/mcp",
                    headers={"X-Port": "8931", "X-Region": "eu", "Authorization": "Bearer t0k3n"},
                ),
                warnings=(f"default_tools_approval_mode: {NO_APPROVAL}",),
            ),
        ],
        scope="project",
    ),
    File(
        "goose/config.yaml",
        """
GOOSE_MODEL: some-model
extensions:
  developer: {type: builtin, name: developer, enabled: true, timeout: 300, bundled: true}
  fetch:
    name: fetch
    type: stdio
    enabled: true
    cmd: uvx
    args: [mcp-server-fetch, --port, 0123]
    envs: {MODE: no, LD_PRELOAD: /tmp/x.so}
    env_keys: [TOKEN]
    timeout: 300
    available_tools: []
  remote:
    type: streamable_http
    enabled: false
    uri: https://example.com/mcp
    headers: {Authorization: Bearer $TOKEN}
    description: null
        """,
        "goose",
        [
            Server("developer", None, timeout=300, problem="it is built into its host"),
            Server(
                "fetch",
                Stdio(["uvx", "mcp-server-fetch", "--port", "0123"], env={"MODE": "no", "TOKEN": "t0k3n"}),
                timeout=300,
                warnings=("env.LD_PRELOAD: it is not set, since Goose lets no server set it",),
            ),
            Server(
                "remote",
                StreamableHttp("https://example.com/mcp", headers={"Authorization": "Bearer t0k3n"}),
                enabled=False,
            ),
        ],
        scope="user",
    ),
]


def test_the_files_of_users_describe_the_servers_that_a_host_makes_by_hand(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for number, file in enumerate(FILES):
        with subtests.test(f"{number} {file.name}"):
            result = read(file, tmp_path / str(number))

            assert comparable(result) == comparable(file)
