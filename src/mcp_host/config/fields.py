"""The keys of an entry: what each means in every dialect, and why some are not obeyed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mcp_host.config.values import EnvironmentVariable, Value
from mcp_host.errors import escaped
from mcp_host.secret import Secret

Notes: TypeAlias = list[str]
"""Where a reader writes what a user should know."""


_VARIABLE = re.compile(r"[A-Za-z_][\w().]*", re.ASCII)  # Windows has ProgramFiles(x86)


MAX_NOTES = 100  # about one server, or one file: it may have a million things wrong
MAX_NAME = 256  # characters of the name of a variable or a header, which all that is said of its value begins with


def bounded(notes: Iterable[str]) -> tuple[str, ...]:
    """Each of *notes* once, fit for a terminal; of many, the first, and how many more there are."""
    each = tuple(dict.fromkeys(map(escaped, notes)))
    more = len(each) - MAX_NOTES
    return each if more <= 0 else (*each[:MAX_NOTES], f"... and {more:,} more like these")


class Unreadable(Exception):
    """A value has the wrong type. The text says so, and has no value. It does not leave this package."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a key means: the *part* of the entry that it is, and how its value is read.

    An entry cannot be used if a key that *decides* cannot be read. Any other is ignored then, with a warning.
    """

    part: str
    read: Callable[[str, object, Notes], object]
    decides: bool = True


Meaning: TypeAlias = Key | str
"""A key, or the reason why it is not obeyed. With an empty reason it needs no warning: it changes nothing here."""


# Reading values


def text(at: str, value: object, notes: Notes) -> Secret:
    if isinstance(value, bool | int | float):
        value = str(value).lower() if isinstance(value, bool) else str(value)
        notes.append(f"{at}: it is no text: put it in quotes")
    if not isinstance(value, str):
        raise _wrong(at, "text", value)
    return Secret(value)


def plain(at: str, value: object, notes: Notes) -> str:
    return str.__str__(text(at, value, notes))


def seconds(at: str, value: object, notes: Notes) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # the error is caught
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise Unreadable(f"{at}: it must be a number above 0")
    return number


def milliseconds(at: str, value: object, notes: Notes) -> float:
    return seconds(at, value, notes) / 1000


def either_unit(at: str, value: object, notes: Notes) -> float:
    """A time whose unit depends on the host: a file has neither a thousand seconds nor less than one."""
    number = seconds(at, value, notes)
    unit = "milliseconds" if number >= 1000 else "seconds"
    notes.append(f"{at}: it is read as {unit}, since hosts differ")
    return number / 1000 if number >= 1000 else number


def unit_of_a_host(at: str, value: object, notes: Notes) -> float:
    """The same, in a file whose host is not known."""
    number = either_unit(at, value, notes)
    notes[-1] += ": with the dialect= of a host that has this key, its unit is certain"
    return number


def flag(at: str, value: object, notes: Notes) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise _wrong(at, "true or false", value)


def opposite(at: str, value: object, notes: Notes) -> bool:
    return not flag(at, value, notes)


def as_written(key: Meaning, value: object) -> object:
    """What *key* has if it means *value*: times and switches are spelled in several ways."""
    read = key.read if isinstance(key, Key) else None
    if read is opposite:
        return not value
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value * 1000 if read is milliseconds else value)
        return int(number) if number.is_integer() else number
    return value


def texts(at: str, value: object, notes: Notes) -> tuple[Secret, ...]:
    if not isinstance(value, list):
        raise _wrong(at, "a list of texts", value)
    return tuple(text(f"{at}[{index}]", item, notes) for index, item in enumerate(value))


def command(at: str, value: object, notes: Notes) -> tuple[Secret, ...]:
    """A program, or with its arguments as a list (OpenCode)."""
    return texts(at, value, notes) if isinstance(value, list) else (text(at, value, notes),)


def mapping(at: str, value: object, notes: Notes) -> dict[str, Value]:
    members = _object(at, value)
    if any(len(name) > MAX_NAME for name in members):
        raise Unreadable(f"{at}: a name in it has more than {MAX_NAME} characters")
    return {name: text(f"{at}.{name}", item, notes) for name, item in members.items()}


def nullable_mapping(at: str, value: object, notes: Notes) -> dict[str, Value]:
    """The same, where null removes what a server would inherit (VS Code)."""
    members = _object(at, value)
    read = mapping(at, {name: "" if item is None else item for name, item in members.items()}, notes)
    for name in [name for name, item in members.items() if item is None]:
        notes.append(f"{at}.{name}: null is {NOT_USED}")
        del read[name]
    return read


def variables(at: str, value: object, notes: Notes) -> dict[str, Value]:
    """Names of variables that have to be set."""
    return {name: EnvironmentVariable(_variable(at, name)) for name in _names(at, value)}


def optional_variables(at: str, value: object, notes: Notes) -> dict[str, Value]:
    """Names of variables to pass on if they are set, or objects with a name (Codex)."""
    if not isinstance(value, list):
        raise _wrong(at, "a list of names", value)
    listed = [item.get("name") if isinstance(item, dict) else item for item in value]
    if any(isinstance(item, dict) and item.get("source", "local") != "local" for item in value):
        raise Unreadable(f"{at}: only variables of the source 'local' are supported")
    return {name: EnvironmentVariable(_variable(at, name), optional=True) for name in _names(at, listed)}


def headers_of_variables(at: str, value: object, notes: Notes) -> dict[str, Value]:
    """The names of headers, with the variables that have their values."""
    variables = mapping(at, value, notes)
    return {name: EnvironmentVariable(_variable(f"{at}.{name}", str(of))) for name, of in variables.items()}


def bearer_variable(at: str, value: object, notes: Notes) -> dict[str, Value]:
    return {"Authorization": EnvironmentVariable(_variable(at, plain(at, value, notes)), prefix="Bearer ")}


def tools(at: str, value: object, notes: Notes) -> frozenset[str] | None:
    """The names of tools; None for all. An object has settings of tools by name (Codex, fastmcp)."""
    if isinstance(value, dict):
        notes.append(f"{at}: {TOOL_SETTINGS}")
        return None
    allowed = names(at, value, notes)
    return None if "*" in allowed else allowed


def nonempty_tools(at: str, value: object, notes: Notes) -> frozenset[str] | None:
    """The same, where no names are all of them (Goose)."""
    return tools(at, value, notes) or None


def names(at: str, value: object, notes: Notes) -> frozenset[str]:
    return frozenset(_names(at, value))


def login(at: str, value: object, notes: Notes) -> dict[str, object] | Secret:
    """The settings of a login; or true, false or "oauth" for whether there is one; or a token to send (fastmcp)."""
    if isinstance(value, bool):
        return {"enabled": value}
    if isinstance(value, str):
        return {} if value.lower() == "oauth" else Secret(value)
    settings: dict[str, object] = {}
    for key, item in _object(at, value).items():
        if item is None:
            continue
        if (known := OAUTH_KEYS.get(key)) is None:
            notes.append(f"{at}.{key}: the key is unknown, and ignored")
        elif isinstance(known, str):
            notes.append(f"{at}.{key}: {known}")
        else:
            settings[known.part] = known.read(f"{at}.{key}", item, notes)
    return settings


def scopes(at: str, value: object, notes: Notes) -> tuple[str, ...]:
    """A list, or one text with spaces (Claude Code)."""
    return tuple(value.split() if isinstance(value, str) else _names(at, value))


def oauth_part(part: str, read: Callable[[str, object, Notes], object]) -> Callable[[str, object, Notes], object]:
    """For a setting of the login that is a key of the entry (Codex)."""
    return lambda at, value, notes: {part: read(at, value, notes)}


def port(at: str, value: object, notes: Notes) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 65536:
        raise Unreadable(f"{at}: it must be the number of a port")
    return value


def refused(reason: str) -> Key:
    """A key with which an entry cannot be used."""

    def read(at: str, value: object, notes: Notes) -> object:
        raise Unreadable(f"{at}: {reason}")

    return Key("refused", read)


def _variable(at: str, name: str) -> str:
    """*name*, if variables have such names. It is not repeated otherwise: many who write here a token mean the variable."""
    if not _VARIABLE.fullmatch(name):
        raise Unreadable(f"{at}: it must be the name of a variable of the environment, and cannot be one")
    return name


def _names(at: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(at, "a list of names", value)
    return value


def _object(at: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wrong(at, "an object", value)
    return value


WORDS: Mapping[type | tuple[type, ...], str] = {
    type(None): "null",
    bool: "true or false",
    str: "text",
    (int, float): "a number",
    list: "a list",
    dict: "an object",
}


def kind_of(value: object) -> str:
    """The type of a value of JSON, in words."""
    return next((words for kind, words in WORDS.items() if isinstance(value, kind)), type(value).__name__)


def _wrong(at: str, wanted: str, value: object) -> Unreadable:
    return Unreadable(f"{at}: it must be {wanted}, not {kind_of(value)}")


# The tables

NO_APPROVAL = "no approval is taken from a file: your own approver decides"
TOOL_SETTINGS = "settings of single tools are not supported, and ignored"
NO_SANDBOX = "not supported: the server is started without a sandbox"
NO_TAGS = "tools are not filtered by tags: none is left out"
NOT_USED = "not supported, and ignored"

OAUTH_KEYS: Mapping[str, Meaning] = {
    "enabled": Key("enabled", flag),
    **dict.fromkeys(("clientId", "client_id", "CLIENT_ID"), Key("client_id", plain)),
    **dict.fromkeys(("clientSecret", "client_secret", "CLIENT_SECRET"), Key("client_secret", text)),
    **dict.fromkeys(("scopes", "scope"), Key("scopes", scopes)),
    **dict.fromkeys(("redirectUri", "redirect_uri"), Key("redirect_uri", plain)),
    "callbackPort": Key("callback_port", port),
    "authServerMetadataUrl": Key("metadata_url", plain),
    "authorizationUrl": Key("authorization_url", plain),
    "tokenUrl": Key("token_url", plain),
    "resource": Key("resource", plain),
    "audiences": NOT_USED,
    "tokenParamName": NOT_USED,
}
"""The keys of a login."""

KEYS: Mapping[str, Meaning] = {
    # the transport
    **dict.fromkeys(("type", "transport", "transportType"), Key("kind", plain)),
    **dict.fromkeys(("command", "cmd"), Key("command", command)),
    "args": Key("args", texts),
    "env_keys": Key("env", variables),
    "env_vars": Key("env", optional_variables),
    **dict.fromkeys(("env", "envs", "environment"), Key("env", mapping)),
    "envFile": Key("env_file", plain),
    "cwd": Key("cwd", plain),
    **dict.fromkeys(("httpUrl", "serverUrl", "url", "uri"), Key("url", text)),
    "socket": Key("uds", plain),
    "env_http_headers": Key("headers", headers_of_variables),
    **dict.fromkeys(("headers", "http_headers"), Key("headers", mapping)),
    "bearer_token_env_var": Key("headers", bearer_variable),
    "bearer_token": refused("a token is not read from the file: name its variable in bearer_token_env_var"),
    "headersHelper": "the command is not run, and its headers are not sent",
    "tcp": Key("websocket", plain),
    # the login
    **dict.fromkeys(("oauth", "auth"), Key("oauth", login)),
    "scopes": Key("oauth", oauth_part("scopes", scopes)),
    "oauth_resource": Key("oauth", oauth_part("resource", plain)),
    "authentication": NOT_USED,
    "authProviderType": "only OAuth is supported as a login",
    "targetAudience": NOT_USED,
    "targetServiceAccount": NOT_USED,
    # what is let through
    "disabled": Key("enabled", opposite),
    "enabled": Key("enabled", flag),
    **dict.fromkeys(("includeTools", "enabled_tools", "tools"), Key("allow", tools)),
    "available_tools": Key("allow", nonempty_tools),
    **dict.fromkeys(("excludeTools", "disabled_tools", "disabledTools"), Key("exclude", names)),
    "include_tags": NO_TAGS,
    "exclude_tags": NO_TAGS,
    **dict.fromkeys(
        ("autoApprove", "alwaysAllow", "trust", "tool_permissions", "default_tools_approval_mode"), NO_APPROVAL
    ),
    **dict.fromkeys(("sandbox", "sandboxEnabled"), NO_SANDBOX),
    # times
    "timeout": Key("timeout", either_unit, decides=False),
    "tool_timeout_sec": Key("timeout", seconds, decides=False),
    "startup_timeout_sec": Key("connect_timeout", seconds, decides=False),
    "startup_timeout_ms": Key("connect_timeout", milliseconds, decides=False),
    "sse_read_timeout": NOT_USED,
    # what is shown
    **dict.fromkeys(("title", "display_name"), Key("title", plain, decides=False)),
    "description": Key("description", plain, decides=False),
    # what hosts do with servers
    **dict.fromkeys(
        ("required", "experimental_environment", "protocolEra", "dev", "settings", "dependencies"), NOT_USED
    ),
    **dict.fromkeys(
        (
            *("name", "icon", "keep_alive", "gallery", "version", "metadata", "remoteConfigured", "bundled"),
            *("alwaysLoad", "supports_parallel_tool_calls", "code", "registry", "source"),
        ),
        "",
    ),
}
"""All keys of all dialects, in the order in which the first of several with one meaning is taken."""
