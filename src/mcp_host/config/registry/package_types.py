"""The types of packages that a server.json may have: the command that runs each, and what their names may look like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

UNPINNED = "latest"
RANGE = re.compile(r"(^|\.)[xX*](\.|$)")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_!-]*", re.ASCII)
BASE_URL = re.compile(r"https://[A-Za-z0-9][A-Za-z0-9./:_~-]*", re.ASCII)  # neither a user nor what a shell would read
DOCKER_HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class PackageType:
    """How packages of a type are run: *command* with *before*, the runtime's arguments, the package with its version,
    *after*, and the package's own arguments behind a *separator*.

    *identifier* is what a name may look like: it is one word, and no option, path or URL, which the command might take
    instead. *registries* are the public ones; the command is told of another with *registry_option*.
    """

    command: str
    identifier: re.Pattern[str]
    joined: str
    """What is between the package and its version."""
    registries: frozenset[str] = frozenset()
    registry_option: str = ""
    index: str = ""
    """What the URL that the command is told ends with, after that of the registry."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    separator: tuple[str, ...] = ()
    names_environment: bool = False

    def is_pinned(self, word: str) -> bool:
        """Whether *word*, a package, names one version of it."""
        _, has_version, version = word.rpartition("/")[2].partition(self.joined)
        return bool(has_version) and version != UNPINNED


PACKAGE_TYPES: Mapping[str, PackageType] = {
    "npm": PackageType(
        command="npx",
        identifier=re.compile(r"(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.ASCII | re.IGNORECASE),
        joined="@",
        registries=frozenset({"https://registry.npmjs.org"}),
        registry_option="--registry",
        before=("-y",),
    ),
    "pypi": PackageType(
        command="uvx",
        identifier=re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII | re.IGNORECASE),
        joined="==",
        registries=frozenset({"https://pypi.org", "https://pypi.org/simple"}),
        registry_option="--default-index",
        index="/simple",
    ),
    "oci": PackageType(
        command="docker",
        identifier=re.compile(r"[a-z0-9][a-z0-9._-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)*(:\w[\w.-]*)?(@[a-z0-9]+:[0-9a-f]+)?", re.ASCII),
        joined=":",
        before=("run", "-i", "--rm"),
        names_environment=True,
    ),
    "nuget": PackageType(
        command="dnx",
        identifier=re.compile(r"\w[\w.-]*", re.ASCII),
        joined="@",
        registries=frozenset({"https://api.nuget.org", "https://api.nuget.org/v3/index.json"}),
        registry_option="--source",
        after=("--yes",),
        separator=("--",),
    ),
}  # fmt: skip

UNSUPPORTED: Mapping[str, str] = {
    "mcpb": "bundles (mcpb) are not supported",
    "cargo": "packages of cargo are not supported",
    "homebrew": "packages of Homebrew are not supported",
}


def version_problem(version: str) -> str | None:
    """Why no package may have this version: "Must be a specific version"."""
    if version == UNPINNED or RANGE.search(version) or not VERSION.fullmatch(version):
        return "it must be one version, without spaces or ranges"
    return None


def image_reference(identifier: str, version: str | None, base_url: str | None) -> str:
    """The reference of an image. Schemas until 2025-09-29 have its registry and its tag beside it."""
    host = (base_url or "").rstrip("/").removeprefix("https://")
    if host and host != DOCKER_HUB and not identifier.startswith(f"{host}/"):
        identifier = f"{host}/{identifier}"
    has_tag = ":" in identifier.rpartition("/")[2]  # or a digest
    return identifier if has_tag or version is None else f"{identifier}:{version}"
