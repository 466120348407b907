"""Files as people have them, written from what each host documents, and the servers that a host would make by hand."""

from __future__ import annotations

from mcp_host import Stdio, StreamableHttp
from mcp_host.config import OAuthSettings, ToolFilter
from mcp_host.config.entry_reader import NOT_SUPPORTED
from mcp_host.config.fields import NO_APPROVAL, NO_SANDBOX, NO_TAGS, NOT_USED, TOOL_SETTINGS
from mcp_host.secret import Secret
from tests.config.described import File, Server

AT = "https://example.com/mcp"
SSE_HINT = "url: it looks like one of HTTP+SSE, which is not supported: Streamable HTTP is tried"


def stays(field: str, form: str, host: str) -> str:
    return f"{field}: {form} stays as it is written: {host} does not expand it"


CLAUDE = [
    File(
        "claude_desktop_config.json",
        """{"globalShortcut": "Ctrl+Space", "mcpServers": {
            "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/u/docs"]},
            "github": {"command": "docker", "args": ["run", "-i", "--rm", "ghcr.io/github/mcp"], "env": {"T": "ghp_1"}}}}""",
        "claude-desktop",
        [
            Server("filesystem", Stdio(["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/u/docs"])),
            Server("github", Stdio(["docker", "run", "-i", "--rm", "ghcr.io/github/mcp"], env={"T": "ghp_1"})),
        ],
    ),
    File(
        "Claude/claude_desktop_config.json",
        r"""{"mcpServers": {"notes": {"command": "C:\\Tools\\notes.exe", "args": ["--vault", "C:\\Users\\u\\Notes"]}}}""",
        "claude-desktop",
        [Server("notes", Stdio(["C:\\Tools\\notes.exe", "--vault", "C:\\Users\\u\\Notes"]))],
    ),
    File(
        "claude_desktop_config.json",
        """{"mcpServers": {"a": {"command": "a", "args": ["~/x", "$HOME"], "env": {"T": "${TOKEN}", "U": "${T:-x}"}}}}""",
        "claude-desktop",
        [
            Server(
                "a",
                Stdio(["a", "~/x", "$HOME"], env={"T": "${TOKEN}", "U": "${T:-x}"}),
                warnings=(
                    stays("args[1]", "something like $V", "Claude Desktop"),
                    stays("env.T", "${TOKEN}", "Claude Desktop"),
                    stays("env.U", "${T:-...}", "Claude Desktop"),
                ),
            )
        ],
    ),
    File("claude_desktop_config.json", """{"mcpServers": {}}""", "claude-desktop", []),
    File("claude_desktop_config.json", """{"preferences": {"menuBarEnabled": true}}""", "claude-desktop", []),
    File(
        ".mcp.json",
        """{"mcpServers": {
            "db": {"command": "${TOOLS}/db-mcp", "args": ["--port", "${DB_PORT:-5432}"], "env": {"KEY": "${TOKEN}"}},
            "api": {"type": "http", "url": "https://example.com/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 30000}}}""",
        "claude-code",
        [
            Server("db", Stdio(["/opt/tools/db-mcp", "--port", "5432"], env={"KEY": "t0k3n"})),
            Server("api", StreamableHttp(AT, headers={"Authorization": "Bearer t0k3n"}), timeout=30),
        ],
        scope="project",
    ),
    File(
        ".mcp.json",
        """{"mcpServers": {"a": {"command": "a", "args": ["$TOKEN", "${env:TOKEN}", "${A:-${TOKEN}}", "${X:-}", "100%"]}}}""",
        "claude-code",
        [
            Server(
                "a",
                Stdio(["a", "$TOKEN", "${env:TOKEN}", "${A:-${TOKEN}}", "", "100%"]),
                warnings=(
                    stays("args[0]", "something like $V", "Claude Code"),
                    stays("args[1]", "${env:TOKEN}", "Claude Code"),
                    stays("args[2]", "something like ${...}", "Claude Code"),
                ),
            )
        ],
        scope="project",
    ),
    File(
        ".claude.json",
        """{"numStartups": 7, "projects": {"/projects/shop": {"mcpServers": {"local": {"command": "x"}}}}, "mcpServers": {
            "sentry": {"type": "http", "url": "https://example.com/mcp", "oauth": {"clientId": "c", "x": null, "xaa": true, "callbackPort": 8123,
                       "scopes": "read write", "authServerMetadataUrl": "https://as.example.com/${T:-x}"}},
            "old": {"type": "sse", "url": "https://example.com/sse"},
            "socket": {"type": "ws", "url": "wss://example.com"}}}""",
        "claude-code",
        [
            Server(
                "sentry",
                StreamableHttp(AT),
                oauth=OAuthSettings(
                    client_id="c", callback_port=8123, scopes=("read", "write"), metadata_url="https://as.example.com/x"
                ),
                warnings=("oauth.xaa: the key is unknown, and ignored",),
            ),
            Server("old", None, problem=NOT_SUPPORTED["sse"]),
            Server("socket", None, problem=NOT_SUPPORTED["ws"]),
        ],
    ),
    File(
        "managed-mcp.json",
        """{"mcpServers": {"corp": {"type": "streamable-http", "url": "https://example.com/mcp"}}}""",
        "claude-code",
        [Server("corp", StreamableHttp(AT))],
    ),
    File(
        "team.json",
        """{"mcpServers": {"internal": {"type": "http", "url": "https://example.com/mcp", "headersHelper": "/bin/token",
                                        "alwaysLoad": true}}}""",
        "claude-code",
        [
            Server(
                "internal",
                StreamableHttp(AT),
                warnings=("headersHelper: the command is not run, and its headers are not sent",),
            )
        ],
    ),
]

VS_CODE = [
    File(
        ".vscode/mcp.json",
        """{"servers": {"a": {"command": "a", "envFile": "${workspaceFolder}/.env"}, "b": {"type": "docker", "image": "x"}}}""",
        "vscode",
        [
            Server("a", None, problem="env_file: the file /projects/shop/.env cannot be read: there is no such file"),
            Server("b", None, warnings=("image: the key is unknown, and ignored",), problem=NOT_SUPPORTED["docker"]),
        ],
        scope="project",
    ),
    File(
        ".vscode/mcp.json",
        """{
            // asked once
            "inputs": [
                {"type": "promptString", "id": "key", "description": "API key", "password": true},
                {"type": "pickString", "id": "region", "options": ["eu", {"label": "US", "value": "us"}]},
            ],
            "servers": {
                "playwright": {"command": "npx", "args": ["-y", "@playwright/mcp@latest"]}, /* no type */
                "search": {
                    "type": "stdio", "command": "${workspaceFolder}/bin/search", "args": ["--region=${input:region}"],
                    "env": {"API_KEY": "${input:key}", "CACHE": "${userHome}/.cache"}, "sandboxEnabled": true,
                },
                "docs": {"type": "http", "url": "https://example.com/${input:region}/mcp", "gallery": true},
            },
        }""",
        "vscode",
        [
            Server("playwright", Stdio(["npx", "-y", "@playwright/mcp@latest"])),
            Server(
                "search",
                Stdio(
                    ["/projects/shop/bin/search", "--region=eu"], env={"API_KEY": "answer-1", "CACHE": "/home/u/.cache"}
                ),
                warnings=(f"sandboxEnabled: {NO_SANDBOX}",),
            ),
            Server("docs", StreamableHttp("https://example.com/eu/mcp")),
        ],
        scope="project",
    ),
    File(
        ".vscode/mcp.json",
        """{"inputs": [{"type": "command", "id": "cmd", "command": "x"}, {"type": "promptString"}], "servers": {
            "cmd": {"command": "a", "args": ["${input:cmd}"]},
            "none": {"command": "a", "args": ["${input:none}"]},
            "trick": {"command": "a", "env": {"T": "${env:TRICK}"}}}}""",
        "vscode",
        [
            Server("cmd", None, problem="args[0]: the input 'cmd' is of the type 'command', which is not supported"),
            Server("none", None, problem="args[0]: the file has no input 'none'"),
            Server("trick", Stdio(["a"], env={"T": "${TOKEN} $TOKEN ${env:TOKEN}"})),
        ],
        scope="project",
        warnings=("inputs[1]: it has no id, and is ignored",),
    ),
    File(
        "Code/User/mcp.json",
        """{"servers": {
            "debug": {"type": "stdio", "command": "node", "args": ["s.js"], "cwd": "${workspaceFolder}${/}s${pathSeparator}t",
                      "dev": {"watch": "*.js"},
                      "env": {"NAME": "${workspaceFolderBasename}", "CFG": "${config:a.b}", "NODE_OPTIONS": null}},
            "socket": {"url": "unix:///run/mcp.sock#/mcp"},
            "whole": {"url": "unix:///run/mcp.sock"},
            "pipe": {"type": "http", "url": "pipe:///pipe/mcp"}}}""",
        "vscode",
        [
            Server(
                "debug",
                Stdio(["node", "s.js"], cwd="/projects/shop/s/t", env={"NAME": "shop", "CFG": "${config:a.b}"}),
                warnings=(
                    f"env.NODE_OPTIONS: null is {NOT_USED}",
                    f"dev: {NOT_USED}",
                    stays("env.CFG", "something like ${a:b | c:d}", "VS Code"),
                ),
            ),
            Server("socket", StreamableHttp("http://localhost/mcp", uds="/run/mcp.sock")),
            Server("whole", StreamableHttp("http://localhost/", uds="/run/mcp.sock")),
            Server("pipe", None, problem="there is no transport for named pipes"),
        ],
    ),
    File(
        "settings.json",
        """{"editor.fontSize": 14, "mcp": {"inputs": [{"type": "promptString", "id": "key"}],
            "servers": {"time": {"command": "uvx", "args": ["mcp-server-time", "${input:key}"],
            "sandbox": {"network": {"allowedDomains": []}}}}}}""",
        "vscode",
        [Server("time", Stdio(["uvx", "mcp-server-time", "answer-1"]), warnings=(f"sandbox: {NO_SANDBOX}",))],
    ),
    File(
        ".copilot/mcp-config.json",
        """{"mcpServers": {
            "gh": {"type": "local", "command": "gh", "args": ["mcp"], "tools": ["*"], "env": {"GH": "${env:TOKEN}"}},
            "two": {"type": "http", "url": "https://example.com/mcp", "headers": {}, "tools": ["a", "b"]}}}""",
        "vscode",
        [
            Server("gh", Stdio(["gh", "mcp"], env={"GH": "t0k3n"})),
            Server("two", StreamableHttp(AT), tools=ToolFilter(frozenset({"a", "b"}))),
        ],
    ),
    File(
        "x.code-profile.json",
        """{"servers": {"one": {"type": "http", "url": "https://example.com/${env:PORT}", "oauth": {"clientId": "c"}}}}""",
        "vscode",
        [Server("one", StreamableHttp("https://example.com/8931"), oauth=OAuthSettings(client_id="c"))],
    ),
]

EDITORS = [
    File(
        ".cursor/mcp.json",
        """{"mcpServers": {
            "local": {"type": "stdio", "command": "python", "args": ["${workspaceFolder}/s.py", "${workspaceFolderBasename}"],
                      "env": {"KEY": "${env:TOKEN}"}},
            "slack": {"url": "https://example.com/mcp", "headers": {"X-Key": "${env:TOKEN}"},
                      "auth": {"CLIENT_ID": "c-${env:PORT}", "CLIENT_SECRET": "${env:TOKEN}", "scopes": ["read", "write"]}}}}""",
        "cursor",
        [
            Server("local", Stdio(["python", "/projects/shop/s.py", "shop"], env={"KEY": "t0k3n"})),
            Server(
                "slack",
                StreamableHttp(AT, headers={"X-Key": "t0k3n"}),
                oauth=OAuthSettings(client_id="c-8931", client_secret=Secret("t0k3n"), scopes=("read", "write")),
            ),
        ],
        scope="project",
    ),
    File(
        ".cursor/mcp.json",
        """{"mcpServers": {"figma": {"url": "http://127.0.0.1:3845/mcp", "type": "streamable-http"},
                           "input": {"command": "a", "args": ["${input:key}", "${TOKEN}"]}}}""",
        "cursor",
        [
            Server("figma", StreamableHttp("http://127.0.0.1:3845/mcp")),
            Server(
                "input",
                Stdio(["a", "${input:key}", "${TOKEN}"]),
                warnings=(stays("args[0]", "${input:key}", "Cursor"), stays("args[1]", "${TOKEN}", "Cursor")),
            ),
        ],
        scope="project",
    ),
    File(
        ".codeium/windsurf/mcp_config.json",
        """{"mcpServers": {
            "remote": {"serverUrl": "https://example.com/mcp", "headers": {"API_KEY": "${env:TOKEN}"}},
            "github": {"command": "npx", "args": ["-y", "server-github"], "env": {"T": "${env:TOKEN}"}, "disabled": false,
                       "disabledTools": ["delete_repo", "fork"]},
            "off": {"command": "x", "disabled": true}}}""",
        "windsurf",
        [
            Server("remote", StreamableHttp(AT, headers={"API_KEY": "t0k3n"})),
            Server(
                "github",
                Stdio(["npx", "-y", "server-github"], env={"T": "t0k3n"}),
                tools=ToolFilter(exclude=frozenset({"delete_repo", "fork"})),
            ),
            Server("off", Stdio(["x"]), enabled=False),
        ],
    ),
    File(
        "copied.json",
        """{"mcpServers": {"remote": {"serverUrl": "https://example.com/mcp"}}}""",
        "windsurf",
        [Server("remote", StreamableHttp(AT))],
    ),
    File(
        "zed/settings.json",
        """// Zed settings
        {
          "theme": "One Dark",
          "context_servers": {
            "custom": {"source": "custom", "enabled": true, "command": "npx", "args": ["-y", "x"], "env": null},
            "older": {"command": {"path": "uvx", "args": ["y"], "env": {"K": "v"}}, "settings": {}},
            "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer literal"}, "enabled": false},
            "ext": {"source": "extension", "enabled": true, "settings": {"key": "v"}},
            "newer": {"settings": {"key": "v"}},
          },
        }""",
        "zed",
        [
            Server("custom", Stdio(["npx", "-y", "x"])),
            Server("older", Stdio(["uvx", "y"], env={"K": "v"}), warnings=(f"settings: {NOT_USED}",)),
            Server("remote", StreamableHttp(AT, headers={"Authorization": "Bearer literal"}), enabled=False),
            Server("ext", None, warnings=(f"settings: {NOT_USED}",), problem=NOT_SUPPORTED["extension"]),
            Server("newer", None, warnings=(f"settings: {NOT_USED}",), problem="it has neither a command nor a URL"),
        ],
    ),
    File(
        ".zed/settings.json",
        """{"context_servers": {"a": {"command": "a", "args": ["$X", "${Y}"]}}, "lsp": {}}""",
        "zed",
        [
            Server(
                "a",
                Stdio(["a", "$X", "${Y}"]),
                warnings=(stays("args[0]", "something like $V", "Zed"), stays("args[1]", "${Y}", "Zed")),
            )
        ],
        scope="project",
    ),
    File("zed/settings.json", """{"theme": "One Dark"}""", "zed", []),
    File(
        "cline_mcp_settings.json",
        """{"mcpServers": {
            "weather": {"command": "node", "args": ["w.js"], "env": {"K": "${env:TOKEN}"}, "disabled": false, "timeout": 60,
                        "autoApprove": ["get_forecast"]},
            "remote": {"type": "streamableHttp", "url": "https://example.com/mcp", "timeout": "90"},
            "older": {"transportType": "http", "url": "https://example.com/mcp"},
            "nested": {"transport": {"type": "stdio", "command": "n", "args": ["--x"]}, "disabled": true, "metadata": {}},
            "inferred": {"url": "https://example.com/sse"}}}""",
        "cline",
        [
            Server(
                "weather",
                Stdio(["node", "w.js"], env={"K": "t0k3n"}),
                timeout=60,
                warnings=(f"autoApprove: {NO_APPROVAL}",),
            ),
            Server("remote", StreamableHttp(AT), timeout=90),
            Server("older", StreamableHttp(AT)),
            Server("nested", Stdio(["n", "--x"]), enabled=False),
            Server("inferred", StreamableHttp("https://example.com/sse"), warnings=(SSE_HINT,)),
        ],
    ),
    File(
        ".cline/mcp.json",
        """{"mcpServers": {"sse": {"type": "sse", "url": "https://example.com/sse"},
                           "a": {"command": "a", "cwd": "/srv/${env:PORT}", "remoteConfigured": true}}}""",
        "cline",
        [Server("sse", None, problem=NOT_SUPPORTED["sse"]), Server("a", Stdio(["a"], cwd="/srv/8931"))],
    ),
    File(
        ".roo/mcp.json",
        """{"mcpServers": {"a": {"command": "a", "alwaysAllow": ["x"], "timeout": 30, "disabledTools": ["y"]}}}""",
        "cline",
        [
            Server(
                "a",
                Stdio(["a"]),
                timeout=30,
                tools=ToolFilter(exclude=frozenset({"y"})),
                warnings=(f"alwaysAllow: {NO_APPROVAL}",),
            )
        ],
    ),
    File(
        ".lmstudio/mcp.json",
        """{"mcpServers": {"hf": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer <YOUR_TOKEN>"}},
                           "a": {"command": "a", "env": {"K": "${env:TOKEN}"}}}}""",
        "lm-studio",
        [
            Server("hf", StreamableHttp(AT, headers={"Authorization": "Bearer <YOUR_TOKEN>"})),
            Server(
                "a", Stdio(["a"], env={"K": "${env:TOKEN}"}), warnings=(stays("env.K", "${env:TOKEN}", "LM Studio"),)
            ),
        ],
    ),
]

AGENTS = [
    File(
        ".gemini/settings.json",
        """{"theme": "x", "mcp": {"allowed": ["py", "http", "both"], "excluded": ["both"], "serverCommand": "x"}, "mcpServers": {
            "py": {"command": "python", "args": ["s.py", "--port=$PORT", "+%Y%m%d"], "cwd": "./s", "timeout": 15000, "trust": true,
                   "env": {"A": "$TOKEN", "B": "${TOKEN}!", "C": "${NOT_THERE:-c}", "D": "a$$TOKEN", "E": "5$ 10%"},
                   "includeTools": ["a", "b"], "excludeTools": ["b"], "description": "Python tools"},
            "http": {"httpUrl": "https://example.com/mcp?q=%41%20b%C3%A9", "headers": {"X-Key": "$TOKEN"}, "timeout": 5000},
            "both": {"httpUrl": "https://example.com/mcp", "url": "https://example.com/sse"},
            "left-out": {"url": "https://example.com/mcp", "type": "http"}}}""",
        "gemini-cli",
        [
            Server(
                "py",
                Stdio(
                    ["python", "s.py", "--port=8931", "+%Y%m%d"],
                    cwd="/projects/shop/s",
                    env={"A": "t0k3n", "B": "t0k3n!", "C": "c", "D": "a$t0k3n", "E": "5$ 10%"},
                ),
                timeout=15,
                tools=ToolFilter(frozenset({"a", "b"}), frozenset({"b"})),
                description="Python tools",
                warnings=(f"trust: {NO_APPROVAL}", stays("args[2]", "something like %V%", "Gemini CLI")),
            ),
            Server(
                "http", StreamableHttp("https://example.com/mcp?q=%41%20b%C3%A9", headers={"X-Key": "t0k3n"}), timeout=5
            ),
            Server(
                "both", StreamableHttp(AT), enabled=False, warnings=("url: it is not used, because httpUrl is there",)
            ),
            Server("left-out", StreamableHttp(AT), enabled=False),
        ],
        scope="project",
        warnings=(f"mcp.serverCommand: {NOT_USED}",),
    ),
    File(
        ".gemini/settings.json",
        """{"mcpServers": {
            "o": {"httpUrl": "https://example.com/mcp", "oauth": {"enabled": true, "clientId": "$PORT", "clientSecret": "$TOKEN",
                  "authorizationUrl": "https://a/x", "tokenUrl": "https://a/t", "scopes": ["s"], "redirectUri": "http://l/cb",
                  "tokenParamName": "t", "audiences": ["x"]}},
            "off": {"httpUrl": "https://example.com/mcp", "oauth": {"enabled": false}},
            "gcp": {"httpUrl": "https://example.com/mcp", "authProviderType": "google_credentials", "targetAudience": "t"},
            "ws": {"tcp": "ws://example.com"}, "empty": {"command": "a", "env": {"A": "$EMPTY"}}}}""",
        "gemini-cli",
        [
            Server(
                "o",
                StreamableHttp(AT),
                oauth=OAuthSettings(
                    client_id="8931",
                    client_secret=Secret("t0k3n"),
                    authorization_url="https://a/x",
                    token_url="https://a/t",
                    scopes=("s",),
                    redirect_uri="http://l/cb",
                ),
                warnings=(f"oauth.tokenParamName: {NOT_USED}", f"oauth.audiences: {NOT_USED}"),
            ),
            Server("off", StreamableHttp(AT), oauth=OAuthSettings(enabled=False)),
            Server(
                "gcp",
                StreamableHttp(AT),
                warnings=("authProviderType: only OAuth is supported as a login", f"targetAudience: {NOT_USED}"),
            ),
            Server("ws", None, problem=NOT_SUPPORTED["ws"]),
            Server("empty", Stdio(["a"], env={"A": ""})),
        ],
        scope="project",
    ),
    File(
        "exported.json",
        """{"mcpServers": {"a": {"httpUrl": "https://example.com/mcp"}}}""",
        "gemini-cli",
        [Server("a", StreamableHttp(AT))],
    ),
    File(
        "goose/config.yaml",
        """
GOOSE_MODEL: some-model
extensions:
  developer: {type: builtin, name: developer, enabled: true, timeout: 300, bundled: true}
  todo: {type: platform, name: todo, enabled: true}
  fetch:
    name: fetch
    type: stdio
    enabled: true
    cmd: uvx
    args: [mcp-server-fetch, --port, 0123]
    envs: {MODE: no, LD_PRELOAD: /tmp/x.so, path: /tmp, VERSION: 1.10}
    env_keys: [TOKEN]
    timeout: 300
    available_tools: []
  remote:
    type: streamable_http
    display_name: Remote
    enabled: false
    uri: https://example.com/mcp
    envs: {}
    env_keys: []
    headers: {Authorization: Bearer $TOKEN, X-Key: "${TOKEN}"}
    description: null
    available_tools: [a]
""",
        "goose",
        [
            Server("developer", None, timeout=300, problem=NOT_SUPPORTED["builtin"]),
            Server("todo", None, problem=NOT_SUPPORTED["platform"]),
            Server(
                "fetch",
                Stdio(
                    ["uvx", "mcp-server-fetch", "--port", "0123"],
                    env={"TOKEN": "t0k3n", "MODE": "no", "VERSION": "1.10"},
                ),
                timeout=300,
                warnings=(
                    "env.LD_PRELOAD: it is not set, since Goose lets no server set it",
                    "env.path: it is not set, since Goose lets no server set it",
                ),
            ),
            Server(
                "remote",
                StreamableHttp(AT, headers={"Authorization": "Bearer t0k3n", "X-Key": "t0k3n"}),
                enabled=False,
                tools=ToolFilter(frozenset({"a"})),
                title="Remote",
            ),
        ],
    ),
    File(
        "goose/config.yaml",
        """
extensions:
  a: &shared
    type: stdio
    cmd: a
    args: ["$TOKEN"]
    env_keys: [NOT_THERE]
  b:
    <<: *shared
    cmd: b
    env_keys:
  old: {type: sse, uri: https://example.com/sse}
  code: {type: inline_python, code: print(), dependencies: [x]}
  socket: {type: streamable_http, uri: http://localhost/mcp, socket: /run/g.sock}
""",
        "goose",
        [
            Server(
                "a",
                None,
                warnings=(stays("args[0]", "something like $V", "Goose"),),
                problem="env.NOT_THERE: the environment has no variable 'NOT_THERE'",
            ),
            Server("b", Stdio(["b", "$TOKEN"]), warnings=(stays("args[0]", "something like $V", "Goose"),)),
            Server("old", None, problem=NOT_SUPPORTED["sse"]),
            Server("code", None, warnings=(f"dependencies: {NOT_USED}",), problem=NOT_SUPPORTED["inlinepython"]),
            Server("socket", StreamableHttp("http://localhost/mcp", uds="/run/g.sock")),
        ],
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
        disabled_tools = ["docs"]
        required = true

        [mcp_servers.context7.env]
        MODE = "fast"

        [mcp_servers.figma]
        url = "https://example.com/mcp"
        bearer_token_env_var = "TOKEN"
        http_headers = { "X-Region" = "eu" }
        env_http_headers = { "X-Port" = "PORT" }
        default_tools_approval_mode = "approve"
        supports_parallel_tool_calls = true
        tools.search.approval_mode = "approve"
        """,
        "codex",
        [
            Server(
                "context7",
                Stdio(["npx", "-y", "@upstash/context7-mcp"], env={"TOKEN": "t0k3n", "PORT": "8931", "MODE": "fast"}),
                timeout=45.5,
                connect_timeout=20,
                tools=ToolFilter(frozenset({"resolve", "docs"}), frozenset({"docs"})),
                warnings=(
                    f"required: {NOT_USED}",
                    "env.NOT_THERE: it is left out, since the environment has no such variable",
                ),
            ),
            Server(
                "figma",
                StreamableHttp(AT, headers={"X-Port": "8931", "X-Region": "eu", "Authorization": "Bearer t0k3n"}),
                warnings=(f"tools: {TOOL_SETTINGS}", f"default_tools_approval_mode: {NO_APPROVAL}"),
            ),
        ],
        scope="project",
    ),
    File(
        "config.toml",
        """
        [mcp_servers.lost]
        url = "https://example.com/mcp"
        headers = { Authorization = "Bearer literal" }
        startup_timeout_ms = 1500
        [mcp_servers.login]
        url = "https://example.com/mcp"
        scopes = ["a"]
        oauth_resource = "https://example.com/"
        oauth = { client_id = "c" }
        enabled = false
        [mcp_servers.token]
        url = "https://example.com/mcp"
        bearer_token = "literal"
        [mcp_servers.unset]
        url = "https://example.com/mcp"
        bearer_token_env_var = "NOT_THERE"
        [mcp_servers.plain]
        command = "a"
        args = ["${TOKEN}"]
        """,
        "codex",
        [
            Server(
                "lost",
                StreamableHttp(AT),
                connect_timeout=1.5,
                warnings=("headers: Codex does not know this key: http_headers and env_http_headers are sent",),
            ),
            Server(
                "login",
                StreamableHttp(AT),
                enabled=False,
                oauth=OAuthSettings(client_id="c", scopes=("a",), resource="https://example.com/"),
            ),
            Server(
                "token",
                None,
                problem="bearer_token: a token is not read from the file: name its variable in bearer_token_env_var",
            ),
            Server("unset", None, problem="headers.Authorization: the environment has no variable 'NOT_THERE'"),
            Server("plain", Stdio(["a", "${TOKEN}"]), warnings=(stays("args[0]", "${TOKEN}", "Codex"),)),
        ],
    ),
    File(
        "opencode.json",
        """{"$schema": "https://opencode.ai/config.json", "mcp": {
            "local": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"K": "{env:TOKEN}"}, "timeout": 5000},
            "remote": {"type": "remote", "url": "https://example.com/mcp", "headers": {"X-Key": "Bearer {env:TOKEN}"},
                       "enabled": false, "oauth": {"clientId": "{env:PORT}", "scope": "a b"}},
            "no-login": {"type": "remote", "url": "https://example.com/mcp", "oauth": false}}}""",
        "opencode",
        [
            Server("local", Stdio(["npx", "-y", "x"], env={"K": "t0k3n"}), connect_timeout=5),
            Server(
                "remote",
                StreamableHttp(AT, headers={"X-Key": "Bearer t0k3n"}),
                enabled=False,
                oauth=OAuthSettings(client_id="8931", scopes=("a", "b")),
            ),
            Server("no-login", StreamableHttp(AT), oauth=OAuthSettings(enabled=False)),
        ],
        scope="project",
    ),
    File(
        "opencode/opencode.jsonc",
        """{"mcp": {"servers": {"a": {"type": "local", "command": ["a", "${TOKEN}"], "cwd": "/srv", "disabled": true},}}}""",
        "opencode",
        [
            Server(
                "a",
                Stdio(["a", "${TOKEN}"], cwd="/srv"),
                enabled=False,
                warnings=(stays("args[0]", "${TOKEN}", "OpenCode"),),
            )
        ],
        scope="project",
    ),
]

LIBRARIES = [
    File(
        "servers.json",
        """{"mcpServers": {
            "weather": {"url": "https://example.com/mcp", "transport": "http", "auth": "oauth", "timeout": 30000,
                        "sse_read_timeout": 5, "icon": "x"},
            "token": {"url": "https://example.com/mcp", "auth": "secret-token", "include_tags": ["safe"],
                      "exclude_tags": ["odd"]},
            "assistant": {"command": "python", "args": ["a.py"], "env": {"LOG": "INFO"}, "cwd": "/srv", "keep_alive": false,
                          "tools": {"x": {"name": "y"}}, "description": "Answers"},
            "stream": {"url": "https://example.com/mcp", "transport": "streamable-http", "headers": {"A": "$T"}},
            "old": {"url": "https://example.com/sse", "transport": "sse"}}}""",
        "fastmcp",
        [
            Server(
                "weather",
                StreamableHttp(AT),
                timeout=30,
                oauth=OAuthSettings(),
                warnings=(f"sse_read_timeout: {NOT_USED}",),
            ),
            Server(
                "token",
                StreamableHttp(AT, headers={"Authorization": "Bearer secret-token"}),
                warnings=(f"include_tags: {NO_TAGS}", f"exclude_tags: {NO_TAGS}"),
            ),
            Server(
                "assistant",
                Stdio(["python", "a.py"], env={"LOG": "INFO"}, cwd="/srv"),
                description="Answers",
                warnings=(f"tools: {TOOL_SETTINGS}",),
            ),
            Server(
                "stream",
                StreamableHttp(AT, headers={"A": "$T"}),
                warnings=(stays("headers.A", "something like $V", "fastmcp"),),
            ),
            Server("old", None, problem=NOT_SUPPORTED["sse"]),
        ],
    ),
    File(
        "bare.json",
        """{"a": {"command": "a", "timeout": 500}, "b": {"url": "https://example.com/mcp"}}""",
        "fastmcp",
        [Server("a", Stdio(["a"]), timeout=0.5), Server("b", StreamableHttp(AT))],
    ),
    File(
        ".mcp-inspector/mcp.json",
        """{"mcpServers": {"a": {"type": "streamable-http", "url": "https://example.com/mcp", "protocolEra": "modern"},
                           "b": {"type": "stdio", "command": "b"}}}""",
        "inspector",
        [Server("a", StreamableHttp(AT), warnings=(f"protocolEra: {NOT_USED}",)), Server("b", Stdio(["b"]))],
    ),
    File(
        "elsewhere.json",
        """{"mcpServers": {"a": {"type": "stdio", "command": "a", "protocolEra": "legacy"}}}""",
        "inspector",
        [Server("a", Stdio(["a"]), warnings=(f"protocolEra: {NOT_USED}",))],
    ),
    File(
        "mcp.json",
        """{"mcpServers": {
            "stdio": {"type": "stdio", "title": "Shop", "description": "Orders", "command": "npx", "args": ["shop@1.2.3"],
                      "env": {"A": "${env:NOT_THERE | env:EMPTY | value:x}", "B": "${input:key}", "C": "${env:EMPTY | env:PORT}",
                              "D": "${value:a}-${env:TOKEN}"}},
            "http": {"type": "streamable-http", "url": "https://example.com/mcp",
                     "headers": {"X-Key": "${op://vault/item/field | input:key}"},
                     "oauth": {"clientId": "c", "scopes": ["s"], "redirectUri": "http://localhost/cb"}},
            "op": {"type": "streamable-http", "url": "https://example.com/mcp", "headers": {"X-Key": "${op://vault/item/field}"}},
            "both": {"type": "streamable-http", "url": "https://example.com/mcp", "headers": {"authorization": "Basic x"},
                     "oauth": {}},
            "sse": {"type": "sse", "url": "https://example.com/sse"}}}""",
        "sep-2633",
        [
            Server(
                "stdio",
                Stdio(["npx", "shop@1.2.3"], env={"A": "x", "B": "answer-1", "C": "8931", "D": "a-t0k3n"}),
                title="Shop",
                description="Orders",
            ),
            Server(
                "http",
                StreamableHttp(AT, headers={"X-Key": "answer-1"}),
                oauth=OAuthSettings(client_id="c", scopes=("s",), redirect_uri="http://localhost/cb"),
            ),
            Server("op", None, problem="headers.X-Key: the source 'op' of a value is not supported"),
            Server(
                "both",
                StreamableHttp(AT, headers={"authorization": "Basic x"}),
                warnings=("oauth: it is not used, because the headers have Authorization",),
            ),
            Server("sse", None, problem=NOT_SUPPORTED["sse"]),
        ],
        given="sep-2633",
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"type": "stdio", "command": "a", "args": ["${TOKEN}", "${workspaceFolder}"]}}}""",
        "sep-2633",
        [
            Server(
                "a",
                Stdio(["a", "${TOKEN}", "${workspaceFolder}"]),
                warnings=(stays("args[0]", "${TOKEN}", "SEP-2633"), stays("args[1]", "${workspaceFolder}", "SEP-2633")),
            )
        ],
        given="sep-2633",
    ),
]

ANY = [
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"command": "a", "timeout": 0}, "b": {"command": "b", "timeout": true, "description": null},
                           "c": {"url": "HTTPS://example.com/mcp", "type": "Streamable-HTTP"}}}""",
        "mcp-host",
        [
            Server("a", Stdio(["a"]), warnings=("timeout: it must be a number above 0",)),
            Server("b", Stdio(["b"]), warnings=("timeout: it must be a number above 0",)),
            Server("c", StreamableHttp("HTTPS://example.com/mcp")),
        ],
    ),
    File(
        ".kiro/settings/mcp.json",
        """{"mcpServers": {"docs": {"command": "uvx", "args": ["docs@latest"], "disabled": false, "autoApprove": ["search"],
                                  "disabledTools": ["write"], "timeout": 60000}}}""",
        "mcp-host",  # several hosts have autoApprove, and not the same unit
        [
            Server(
                "docs",
                Stdio(["uvx", "docs@latest"]),
                timeout=60,
                tools=ToolFilter(exclude=frozenset({"write"})),
                warnings=(
                    f"autoApprove: {NO_APPROVAL}",
                    "timeout: it is read as milliseconds, since hosts differ: with the dialect= of a host that has this key, its unit is certain",
                ),
            )
        ],
    ),
    File(
        "copied.json",
        """{"mcpServers": {"a": {"command": "a", "args": ["${PORT}"], "autoApprove": ["x"]}}}""",
        "mcp-host",
        [Server("a", Stdio(["a", "8931"]), warnings=(f"autoApprove: {NO_APPROVAL}",))],
    ),
    File(
        "config.yml",
        "# comment\nextensions:\n  a: {type: stdio, cmd: a, args: []}\n",
        "goose",
        [Server("a", Stdio(["a"]))],
    ),
    File(
        "mcp.json",
        """{"mcpServers": {
            "a": {"command": "a", "args": ["${PORT}", "${X:-d}", "${env:PORT}", "${input:region}", "${workspaceFolder}",
                                           "${env:X | value:y}", "$PORT", "${a b}"]},
            "slow": {"command": "s", "timeout": 60},
            "ms": {"command": "s", "timeout": 60000}}}""",
        "mcp-host",
        [
            Server(
                "a",
                Stdio(["a", "8931", "d", "8931", "eu", "/projects/shop", "y", "$PORT", "${a b}"]),
                warnings=(
                    stays("args[6]", "something like $V", "mcp-host"),
                    stays("args[7]", "something like ${...}", "mcp-host"),
                ),
            ),
            Server(
                "slow",
                Stdio(["s"]),
                timeout=60,
                warnings=(
                    "timeout: it is read as seconds, since hosts differ: with the dialect= of a host that has this key, its unit is certain",
                ),
            ),
            Server(
                "ms",
                Stdio(["s"]),
                timeout=60,
                warnings=(
                    "timeout: it is read as milliseconds, since hosts differ: with the dialect= of a host that has this key, its unit is certain",
                ),
            ),
        ],
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"slow": {"command": "s", "timeout": 60}}}""",
        "lm-studio",
        [Server("slow", Stdio(["s"]), timeout=60, warnings=("timeout: it is read as seconds, since hosts differ",))],
        given="lm-studio",
    ),
    File(
        "mcp.json",
        '\ufeff{"mcpServers": {"a": {"command": "a"}}}',
        "mcp-host",
        [Server("a", Stdio(["a"]))],
        warnings=("it begins with a byte order mark, at which other programs may fail",),
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"command": "first"}, "a": {"command": "a", "env": {"K": "1", "K": "2"}, "args": ["x"],
                           "args": []}}}""",
        "mcp-host",
        [
            Server(
                "a",
                Stdio(["a"], env={"K": "2"}),
                warnings=(
                    "args: it is there more than once: the last one is taken",
                    "env.K: it is there more than once: the last one is taken",
                ),
            )
        ],
        warnings=("'a' is there more than once: the last one is taken",),
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"transport": {"command": {"path": "a", "env": {"K": "2", "K": "3"}}, "disabled": false},
                                 "command": "b", "disabled": true, "env": {"READ_ONLY": "1"}}}}""",
        "mcp-host",
        [
            Server(
                "a",
                Stdio(["a"], env={"K": "3"}),
                warnings=(
                    "transport.command.env.K: it is there more than once: the last one is taken",
                    "command: it is there more than once: that in transport is taken",
                    "disabled: it is there more than once: that in transport is taken",
                    "env: it is there more than once: that in command is taken",
                ),
            )
        ],
    ),
    File(
        "mcp.json",
        """{"$schema": "x", "mcpServers": {"a": {"command": "a", "_comment": "mine", "//": "x", "arg": ["y"], "colour": 1}}}""",
        "mcp-host",
        [
            Server(
                "a",
                Stdio(["a"]),
                warnings=(
                    "arg: the key is unknown, and ignored: did you mean 'args'?",
                    "colour: the key is unknown, and ignored",
                ),
            )
        ],
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"command": "a", "args": ["--port", 8931, true], "env": {"N": 1.5}, "timeout": "soon",
                                 "title": ["x"]}}}""",
        "mcp-host",
        [
            Server(
                "a",
                Stdio(["a", "--port", "8931", "true"], env={"N": "1.5"}),
                warnings=(
                    "args[1]: it is no text: put it in quotes",
                    "args[2]: it is no text: put it in quotes",
                    "env.N: it is no text: put it in quotes",
                    "timeout: it must be a number above 0",
                    "title: it must be text, not a list",
                ),
            )
        ],
    ),
    File(
        "mcp.yaml",
        "mcpServers:\n  a:\n    command: a\n    env: {ON: on, AT: 12:30, DAY: 2026-11-26, Q: \"true\", Q: 'null'}\n",
        "mcp-host",
        [
            Server(
                "a",
                Stdio(["a"], env={"ON": "on", "AT": "12:30", "DAY": "2026-11-26", "Q": "null"}),
                warnings=("env.Q: it is there more than once: the last one is taken",),
            )
        ],
    ),
    File(
        "mcp.toml",
        '[mcpServers.a]\ncommand = "a"\n[mcpServers.b]\nurl = "https://example.com/mcp"\n',
        "mcp-host",
        [Server("a", Stdio(["a"])), Server("b", StreamableHttp(AT))],
    ),
    File("no-extension", '# mine\n[mcp_servers.a]\ncommand = "a"\n', "codex", [Server("a", Stdio(["a"]))]),
    File("no-extension", "extensions:\n  a: {cmd: a}\n", "goose", [Server("a", Stdio(["a"]))]),
    File("no-extension", '/* mine */ {"servers": {"a": {"command": "a"}}}', "vscode", [Server("a", Stdio(["a"]))]),
    File("mcp.json", "\n", "mcp-host", [], warnings=("it is empty",)),
    File("mcp.json", "{}", "mcp-host", []),
    File("mcp.json", '{"mcpServers": null}', "mcp-host", []),
    File("new.json", '{"servers": {}, "inputs": []}', "vscode", []),
    File("goose/config.yaml", "extensions:\n", "goose", []),
    File(
        ".mcp.json",
        '{"plugin": {"command": "${TOOLS}/a", "args": ["%TOKEN%"]}}',
        "claude-code",
        [
            Server(
                "plugin",
                Stdio(["/opt/tools/a", "%TOKEN%"]),
                warnings=(stays("args[0]", "something like %V%", "Claude Code"),),
            )
        ],
        scope="project",
    ),
    File("bare.json", '{"a": {"command": "${TOOLS}/a"}}', "mcp-host", [Server("a", Stdio(["/opt/tools/a"]))]),
    File(
        "mcp.json",
        '{"mcpServers": {"x": {"command": "x"}}, "mcpServers": {"a": {"command": "a", "env": {"\\u001b[2J": 1}}}}',
        "mcp-host",
        [Server("a", Stdio(["a"], env={"\x1b[2J": "1"}), warnings=("env.\\x1b[2J: it is no text: put it in quotes",))],
        warnings=("'mcpServers' is there more than once: the last one is taken",),
    ),
    File(
        "mcp.yaml",
        "mcpServers:\n  true:\n    command: a\n    env: {null: x, [a]: y}\n",
        "mcp-host",
        [Server("true", Stdio(["a"], env={"null": "x", "['a']": "y"}))],
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"command": "a"}}, "servers": {"b": {"command": "b"}}}""",
        "mcp-host",
        [Server("a", Stdio(["a"]))],
        warnings=("the servers under servers are not read, since there are some under mcpServers",),
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"url": "https://example.com/mcp", "alwaysAllow": [], "serverUrl": "https://example.com/2"},
                           "b": {"command": "b", "enabled": true, "disabled": true, "headers": {"X": "y"}}}}""",
        "mcp-host",
        [
            Server(
                "a",
                StreamableHttp("https://example.com/2"),
                warnings=("url: it is not used, because serverUrl is there", f"alwaysAllow: {NO_APPROVAL}"),
            ),
            Server(
                "b", Stdio(["b"]), enabled=False, warnings=("headers: it is not used for a server that is started",)
            ),
        ],
    ),
    File(
        "mcp.json",
        """{"mcpServers": {"a": {"url": "https://example.com/mcp", "includeTools": ["x", "y"], "tools": ["y", "z"],
                                 "excludeTools": ["p"], "disabledTools": ["q"], "env": {"K": "v"}, "serverUrl": "https://example.com/mcp"},
                           "b": {"command": "b", "tools": ["*"], "enabled_tools": ["x"]}}}""",
        "mcp-host",
        [
            Server(
                "a",
                StreamableHttp(AT),
                tools=ToolFilter(frozenset({"y"}), frozenset({"p", "q"})),
                warnings=("env: it is not used for a server that is not started",),
            ),
            Server("b", Stdio(["b"]), tools=ToolFilter(frozenset({"x"}))),
        ],
    ),
]

FILES = [*CLAUDE, *VS_CODE, *EDITORS, *AGENTS, *LIBRARIES, *ANY]
