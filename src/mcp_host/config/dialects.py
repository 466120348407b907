"""The dialects: where each host has its servers, which variables it expands, and which keys mean something else there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mcp_host.config.fields import KEYS, Key, Meaning, milliseconds, nullable_mapping, plain, seconds, unit_of_a_host
from mcp_host.config.variables import Form

SERVERS = ("mcpServers",)
EDITOR: frozenset[Form] = frozenset({"${env:V}", "${workspaceFolder}"})
OF_WINDOWS: frozenset[Form] = frozenset({"%V%"})  # "supported only when running on Windows"
IN_SECONDS: Mapping[str, Meaning] = {"timeout": Key("timeout", seconds, decides=False)}
IN_MILLISECONDS: Mapping[str, Meaning] = {"timeout": Key("timeout", milliseconds, decides=False)}

# Goose sets none of these, since with them an entry could run another program than the one it names.
GOOSE_FORBIDDEN = frozenset(
    (
        *("PATH", "PATHEXT", "SYSTEMROOT", "WINDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "LD_DEBUG"),
        *("LD_BIND_NOW", "LD_ASSUME_KERNEL", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "DYLD_FRAMEWORK_PATH"),
        *("PYTHONPATH", "PYTHONHOME", "NODE_OPTIONS", "RUBYOPT", "GEM_PATH", "GEM_HOME", "CLASSPATH", "GO111MODULE"),
        *("GOROOT", "APPINIT_DLLS", "SESSIONNAME", "COMSPEC", "TEMP", "TMP", "LOCALAPPDATA", "USERPROFILE"),
        *("HOMEDRIVE", "HOMEPATH"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one host writes its servers down."""

    title: str
    """The host's name, for messages."""
    at: tuple[tuple[str, ...], ...] = (SERVERS,)
    """The keys that lead to the servers, from the top of the file; several if the host reads several."""
    variables: frozenset[Form] = frozenset()
    variables_in: Mapping[str, frozenset[Form]] = field(default_factory=lambda: MappingProxyType({}))
    """More of them, in the fields of one kind only, such as "headers"."""
    marks: frozenset[str] = frozenset()
    """Keys of entries that no other host has: a file with one of them is of this dialect."""
    keys: Mapping[str, Meaning] = field(default_factory=lambda: MappingProxyType({}))
    """The keys that mean something else than in `KEYS`."""
    allowed: tuple[str, ...] = ()
    """Where the file has the names of the only servers to use."""
    excluded: tuple[str, ...] = ()
    """Where it has the names of servers not to use."""
    not_used: tuple[tuple[str, ...], ...] = ()
    """Settings of servers outside of their entries that are not obeyed."""
    any_input: bool = False
    """Whether an input may be asked for that the file does not describe."""
    forbidden: frozenset[str] = frozenset()
    """Variables of the environment that an entry cannot set, in upper case."""

    def meanings(self) -> dict[str, Meaning]:
        """What each key means."""
        return {**KEYS, **self.keys}

    def forms(self, field: str, *, platform: str = sys.platform) -> frozenset[Form]:
        """The variables in a field like ``env.TOKEN``."""
        forms = self.variables | self.variables_in.get(field.partition(".")[0], frozenset())
        return forms if platform == "win32" else forms - OF_WINDOWS


GENERIC = "mcp-host"

DIALECTS: Mapping[str, Dialect] = {
    "claude-desktop": Dialect(title="Claude Desktop"),
    "claude-code": Dialect(
        title="Claude Code",
        variables=frozenset({"${V}", "${V:-d}"}),
        marks=frozenset({"headersHelper", "alwaysLoad"}),
        keys=IN_MILLISECONDS,
    ),
    "vscode": Dialect(
        title="VS Code",
        at=(("servers",), ("mcp", "servers"), SERVERS),
        variables=EDITOR | {"${input:id}"},
        marks=frozenset({"sandboxEnabled", "sandbox", "dev"}),
        keys={"env": Key("env", nullable_mapping)},
    ),
    "cursor": Dialect(title="Cursor", variables=EDITOR),
    "windsurf": Dialect(
        title="Windsurf", variables=frozenset({"${env:V}", "${file:/p}"}), marks=frozenset({"serverUrl"})
    ),
    "zed": Dialect(title="Zed", at=(("context_servers",),), keys={"source": Key("kind", plain)}),
    "cline": Dialect(
        title="Cline",
        variables=frozenset({"${env:V}"}),
        marks=frozenset({"alwaysAllow", "transportType", "remoteConfigured"}),
        keys=IN_SECONDS,
    ),
    "gemini-cli": Dialect(
        title="Gemini CLI",
        variables=frozenset({"$V", "${V}", "${V:-d}"}),
        variables_in={"env": OF_WINDOWS},
        marks=frozenset({"httpUrl", "includeTools", "excludeTools", "trust", "authProviderType", "targetAudience"}),
        keys=IN_MILLISECONDS,
        allowed=("mcp", "allowed"),
        excluded=("mcp", "excluded"),
        not_used=(("mcp", "serverCommand"),),
    ),
    "lm-studio": Dialect(title="LM Studio"),
    "goose": Dialect(
        title="Goose",
        at=(("extensions",),),
        variables_in={"headers": frozenset({"$V", "${V}"})},
        keys=IN_SECONDS,
        forbidden=GOOSE_FORBIDDEN,
    ),
    "codex": Dialect(
        title="Codex",
        at=(("mcp_servers",),),
        keys={"headers": "Codex does not know this key: http_headers and env_http_headers are sent"},
    ),
    "opencode": Dialect(
        title="OpenCode",
        at=(("mcp", "servers"), ("mcp",)),
        variables=frozenset({"{env:V}", "{file:/p}"}),
        keys={"timeout": Key("connect_timeout", milliseconds, decides=False)},
    ),
    "fastmcp": Dialect(
        title="fastmcp",
        at=(SERVERS, ()),
        marks=frozenset({"keep_alive", "sse_read_timeout", "include_tags", "exclude_tags", "authentication"}),
        keys=IN_MILLISECONDS,
    ),
    "inspector": Dialect(title="MCP Inspector", marks=frozenset({"protocolEra"})),
    "sep-2633": Dialect(title="SEP-2633", variables=frozenset({"${env:V}", "${input:id}", "${a:b | c:d}"}), any_input=True),
    GENERIC: Dialect(
        title="mcp-host",
        at=(SERVERS, ("servers",), ("mcp", "servers"), ("context_servers",), ("mcp_servers",), ("extensions",), ("mcp",), ()),
        variables=EDITOR | {"${V}", "${V:-d}", "${input:id}", "${file:/p}", "${a:b | c:d}"},
        keys={"timeout": Key("timeout", unit_of_a_host, decides=False)},
        any_input=True,
    ),
}  # fmt: skip
"""By the name that `read_servers` takes. The last is for files that may be of several, and expands what most of them do."""
