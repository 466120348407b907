"""What a fresh system has to know of the machine around it, and nothing else of it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
OF_THE_TESTS = ("BACKENDS", "COVERAGE", "THOROUGH")
PIP = frozenset(
    ("index-url", "extra-index-url", "no-index", "find-links", "constraint", "trusted-host", "cert", "client-cert")
) | {"proxy", "retries", "timeout", "default-timeout"}


def surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for certificates, the way to the network, the folder of the official schemas, and `make test`."""
    wanted = {*CERTIFICATES, *PROXIES, *map(str.upper, PROXIES), *OF_THE_TESTS}
    found = {name: value for name, value in environment.items() if name in wanted}
    if "MCP_SPEC_DIR" in environment:
        found["MCP_SPEC_DIR"] = os.path.realpath(environment["MCP_SPEC_DIR"])
    return found


def pip_settings(listed: str) -> dict[str, str]:
    """What ``pip config list`` says of where packages come from, as variables: the environment before the files."""
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in PIP:
            found[f"PIP_{name.upper().replace('-', '_')}"] = " ".join(ast.literal_eval(value).split())
    return found


def paths(values: Iterable[str]) -> list[str]:
    """The files and folders that *values* name and that are there, without what is in one of these folders.

    A package index on the disk is named by its folder "simple", and has the packages beside that.
    """
    words = [word for value in values for word in value.split()]
    named = {Path(word) for word in words} | {Path(word[7:]).parent for word in words if word.startswith("file:///")}
    there = {path for path in named if path.is_absolute() and path != Path("/") and path.exists()}
    return sorted(str(path) for path in there if there.isdisjoint(path.parents))
