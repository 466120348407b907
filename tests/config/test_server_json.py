"""What a server.json becomes: the command line or URL, the questions, and the sentence for what cannot be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.config import HttpServer, Input, StdioServer
from mcp_host.config.registry import Question, RegistryServer, ServerChoice, read_server_json
from mcp_host.config.registry.server_json import OFFICIAL_META
from mcp_host.errors import RegistryError
from tests.extent import saturated

STDIO = {"transport": {"type": "stdio"}}
NPM = {"registryType": "npm", "identifier": "@example/db", "version": "1.2.3", **STDIO}
OCI = {"registryType": "oci", "identifier": "ghcr.io/example/db:1.2", **STDIO}
REMOTE = {"type": "streamable-http", "url": "https://db.example.com/mcp"}
SECRET = {"name": "API_KEY", "isRequired": True, "isSecret": True}


def server(**members: object) -> RegistryServer:
    return read_server_json(
        {"name": "io.github.example/db", "description": "A database", "version": "1.2.3", **members}
    )


def package(**members: object) -> ServerChoice:
    [choice] = server(packages=[{**NPM, **members}]).choices
    return choice


def remote(**members: object) -> ServerChoice:
    [choice] = server(remotes=[{**REMOTE, **members}]).choices
    return choice


@dataclass
class Row:
    """A choice, what is shown of it, and what it is with answers: a command line with its environment, or a URL with its headers."""

    choice: ServerChoice
    shown: str
    answers: dict[str, str] = field(default_factory=dict)
    real: list[str] | None = None
    """None: as it is shown."""
    values: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    warnings: tuple[str, ...] = ()


def positional(**members: object) -> dict[str, object]:
    return {"type": "positional", **members}


def named(name: str, **members: object) -> dict[str, object]:
    return {"type": "named", "name": name, **members}


MOUNT = named(
    "--mount",
    value="type=bind,src={source},dst={target}",
    isRequired=True,
    isRepeated=True,
    variables={"source": {"format": "filepath", "isRequired": True}, "target": {"default": "/project"}},
)

CHOICES: dict[str, Row] = {
    "npm": Row(package(), "npx -y @example/db@1.2.3"),
    "npx by name": Row(package(runtimeHint="npx"), "npx -y @example/db@1.2.3"),
    "pypi": Row(package(registryType="pypi", identifier="example-db"), "uvx example-db==1.2.3"),
    "oci": Row(package(**OCI, version=None), "docker run -i --rm ghcr.io/example/db:1.2"),
    "a digest": Row(
        package(**OCI | {"identifier": f"example/db@sha256:{'0f' * 32}"}, version=None),
        f"docker run -i --rm example/db@sha256:{'0f' * 32}",
    ),
    "nuget": Row(package(registryType="nuget", identifier="Example.Db"), "dnx Example.Db@1.2.3 --yes"),
    "nuget with arguments": Row(
        package(registryType="nuget", identifier="Example.Db", packageArguments=[positional(value="mcp")]),
        "dnx Example.Db@1.2.3 --yes -- mcp",
    ),
    "an image until 2025-09": Row(
        package(**OCI | {"registryBaseUrl": "https://docker.io", "identifier": "mcp/db"}),
        "docker run -i --rm mcp/db:1.2.3",
    ),
    "an image of another registry": Row(
        package(**OCI | {"registryBaseUrl": "https://ghcr.io/", "identifier": "mcp/db", "version": None}),
        "docker run -i --rm ghcr.io/mcp/db",
        warnings=("its version is not pinned: each start may run another one",),
    ),
    "2025-07": Row(
        server(
            version=None,
            version_detail={"version": "1.0"},
            packages=[
                {
                    "registry_name": "docker",
                    "name": "mcp/db",
                    "version": "1.0",
                    "runtime_arguments": [named("-v", value="{dir}:/data", variables={"dir": {"is_required": True}})],
                    "package_arguments": [positional(value_hint="name", is_required=True)],
                    "environment_variables": [{"name": "KEY", "is_secret": True}, {"name": "LEVEL", "default": "info"}],
                }
            ],
        ).choices[0],
        "docker run -i --rm -v '{dir}:/data' -e KEY -e LEVEL mcp/db:1.0 '{name}'",
        {"dir": "/d", "name": "n"},
        ["docker", "run", "-i", "--rm", "-v", "/d:/data", "-e", "LEVEL", "mcp/db:1.0", "n"],
        {"LEVEL": "info"},
    ),
    "no version": Row(
        package(version=None),
        "npx -y @example/db",
        warnings=("its version is not pinned: each start may run another one",),
    ),
    "another registry": Row(
        package(registryBaseUrl="https://npm.example.com/"),
        "npx -y --registry https://npm.example.com/ @example/db@1.2.3",
        warnings=("the package is from https://npm.example.com/, which is not the public registry",),
    ),
    "another registry of Python, whose index is below it": Row(
        package(registryType="pypi", identifier="db", registryBaseUrl="https://test.pypi.org/"),
        "uvx --default-index https://test.pypi.org/simple db==1.2.3",
        warnings=("the package is from https://test.pypi.org/simple, which is not the public registry",),
    ),
    "the index itself": Row(
        package(registryType="pypi", identifier="db", registryBaseUrl="https://pypi.example.com/simple/"),
        "uvx --default-index https://pypi.example.com/simple/ db==1.2.3",
        warnings=("the package is from https://pypi.example.com/simple/, which is not the public registry",),
    ),
    "the public registry": Row(package(registryBaseUrl="https://registry.npmjs.org/"), "npx -y @example/db@1.2.3"),
    "a checksum": Row(
        package(fileSha256="0" * 64),
        "npx -y @example/db@1.2.3",
        warnings=("its fileSha256 is not checked: the command that runs it downloads it",),
    ),
    "runtime arguments, of which some are there already": Row(
        package(
            **OCI,
            version=None,
            runtimeArguments=[
                *(positional(value="run"), named("-i"), named("--network", value="host")),
                *(named("-i", value="3"), positional(value="")),
            ],
        ),
        "docker run -i --rm --network host -i 3 '' ghcr.io/example/db:1.2",
        real=["docker", "run", "-i", "--rm", "--network", "host", "-i", "3", "", "ghcr.io/example/db:1.2"],
    ),
    "repeated, with variables": Row(
        package(**OCI, version=None, runtimeArguments=[MOUNT]),
        "docker run -i --rm --mount 'type=bind,src={source},dst={target}' ghcr.io/example/db:1.2",
        {"source": "/a\n/b"},
        [
            *("docker", "run", "-i", "--rm", "--mount", "type=bind,src=/a,dst=/project"),
            *("--mount", "type=bind,src=/b,dst=/project", "ghcr.io/example/db:1.2"),
        ],
    ),
    "options": Row(
        package(
            packageArguments=[
                named("--port", format="number"),
                named("--level=", default="info"),
                named("--fast"),
                named("--plain", value=""),
                named("--all", format="boolean", default=True),
                named("--size", value=3),
                named("--left-out", placeholder="x"),
            ]
        ),
        "npx -y @example/db@1.2.3 --port '{port}' '--level={level}' --fast --plain --all '{all}' --size 3 --left-out '{left-out}'",
        {"port": "80"},
        [
            "npx",
            "-y",
            "@example/db@1.2.3",
            "--port",
            "80",
            "--level=info",
            "--fast",
            "--plain",
            "--all",
            "true",
            "--size",
            "3",
        ],
    ),
    "positional arguments": Row(
        package(
            packageArguments=[
                positional(value="start {here} {there}", variables={"here": {"value": "now"}}),
                positional(valueHint="dir", isRepeated=True, isRequired=True),
                positional(valueHint="dir", default="/tmp"),
                positional(default="last"),
            ]
        ),
        "npx -y @example/db@1.2.3 'start now {there}' '{dir}' '{dir-2}' '{argument4}'",
        {"dir": "/a\n/b {here}"},
        ["npx", "-y", "@example/db@1.2.3", "start now {there}", "/a", "/b {here}", "/tmp", "last"],
    ),
    "secrets": Row(
        package(
            environmentVariables=[SECRET, {"name": "FIXED", "value": "x", "isSecret": True}, {"name": "MODE"}],
            packageArguments=[named("--key", value="k={key}", isSecret=True, variables={"key": {"isRequired": True}})],
        ),
        "npx -y @example/db@1.2.3 --key 'k={key}'",
        {"API_KEY": "s1", "key": "s2"},
        ["npx", "-y", "@example/db@1.2.3", "--key", "k=s2"],
        {"API_KEY": "s1", "FIXED": "x"},
        {"env.API_KEY", "args[3]"},
    ),
    "a URL": Row(remote(), "https://db.example.com/mcp"),
    "a URL of 2025-07": Row(
        server(remotes=[{"transport_type": "streamable", "url": "https://db.example.com/mcp"}]).choices[0],
        "https://db.example.com/mcp",
    ),
    "a URL with variables and headers": Row(
        remote(
            url="{base}/{tenant}/{other}",
            variables={"base": {"isRequired": True}, "tenant": {"isRequired": True, "isSecret": True}},
            headers=[
                {"name": "Authorization", "value": "Bearer {token}", "isSecret": True, "variables": {"token": {}}},
                {"name": "X-Region", "default": "eu", "choices": ["eu", "us"]},
                {"name": "X-Trace"},
            ],
        ),
        "{base}/{tenant}/{other}",
        {"base": "http://localhost:8080", "tenant": "t", "token": "s"},
        ["http://localhost:8080/t/{other}"],
        {"Authorization": "Bearer s", "X-Region": "eu"},
        {"url", "headers.Authorization"},
        ("url: {other} is no variable, and stays as it is",),
    ),
}


def test_each_package_and_url_becomes_what_is_shown(subtests: pytest.Subtests) -> None:
    for name, row in CHOICES.items():
        with subtests.test(name):
            prepared = row.choice.prepare(row.answers)
            match prepared.transport:
                case StdioServer(command=command, args=args, env=values):
                    real = [command, *map(str.__str__, args)]
                case HttpServer(url=url, headers=values):
                    real = [str.__str__(url)]

            assert row.choice.shown == row.shown
            assert real == (row.shown.split(" ") if row.real is None else row.real)
            assert values == row.values
            assert prepared.secrets == row.secrets
            assert row.choice.warnings == row.warnings
            assert row.choice.problem is None


UNUSABLE: list[tuple[ServerChoice, str]] = [
    *(
        (package(identifier=name), "packages[0].identifier: no package of npm has such a name")
        for name in ("--registry=https://x", "-c", "a b", "a\tb", "", ".", "../a", "/tmp/a", "a@npm:b", "@a/b/c", "a\n", "é",
                     "owner/repo", "git+ssh://x/a", "https://x.example/a.tgz")
    ),
    *(
        (package(**OCI | {"identifier": name}, version=None), "packages[0].identifier: no package of oci has such a name")
        for name in ("--privileged", "a b", "a\n", "https://ghcr.io/a", "", "A", "a:")
    ),
    *(
        (package(registryType="pypi", identifier=name), "packages[0].identifier: no package of pypi has such a name")
        for name in ("--from", "a b", "git+https://x", "a @ https://x", "a==1", "./a", "a-")
    ),
    (
        package(registryType="nuget", identifier="--source"),
        "packages[0].identifier: no package of nuget has such a name",
    ),
    *(
        (package(version=version), "packages[0].version: it must be one version, without spaces or ranges")
        for version in ("latest", "^1.2.3", "~1.2", ">=1", "1.x", "1.*", "*", "1 || 2", "-1", "1\n", "", "1 --evil")
    ),
    *(
        (package(registryBaseUrl=url), "packages[0].registryBaseUrl: it must be a plain https URL")
        for url in ("http://registry.npmjs.org", "--x", "https://user:pass@x.example", "https://x example", "https://x?a")
    ),
    *(
        (package(runtimeHint=hint), f"packages[0].runtimeHint: packages of npm are run with npx only, not with '{hint}'")
        for hint in ("sh", "uvx", "/tmp/npx", "NPX")
    ),
    (package(registryType="mcpb"), "packages[0]: bundles (mcpb) are not supported"),
    (package(registryType="cargo"), "packages[0]: packages of cargo are not supported"),
    (package(registryType="deb\x1b"), "packages[0]: packages of the type 'deb\\x1b' are not supported"),
    (
        package(transport={"type": "streamable-http", "url": "http://localhost:{port}"}),
        "packages[0].transport.type: the package serves HTTP once it runs: start it yourself, and add its URL",
    ),
    (package(identifier=None), "packages[0].identifier: it is missing"),
    (package(packageArguments=[named("")]), "packages[0].packageArguments[0]: it has no name"),
    (
        package(packageArguments=[{"type": "flag"}]),
        "packages[0].packageArguments[0].type: it must be positional or named",
    ),
    (
        package(packageArguments=[positional(value="a\0")]),
        "packages[0].packageArguments[0].value: it has a NUL character",
    ),
    (
        package(environmentVariables=[{"name": "A=B"}]),
        "packages[0].environmentVariables[0].name: it has characters that such a name must not have",
    ),
    (server(packages=["npx"]).choices[0], "packages[0]: it must be an object"),
    (remote(type="sse"), "remotes[0].type: HTTP+SSE, the transport of 2024-11-05, is not supported"),
    (remote(type="ws"), "remotes[0].type: the transport 'ws' is not supported"),
    (remote(url=None), "remotes[0].url: it is missing"),
    (
        remote(headers=[{"name": "A\r\nB"}]),
        "remotes[0].headers[0].name: it has characters that such a name must not have",
    ),
]  # fmt: skip


def test_what_is_not_what_it_is_called_is_not_started(subtests: pytest.Subtests) -> None:
    for choice, problem in UNUSABLE:
        with subtests.test(problem, name=choice.name):
            with pytest.raises(RegistryError) as caught:
                choice.prepare({})

            assert choice.problem == problem
            assert str(caught.value) == problem
            assert (choice.parts, choice.shown, choice.environment) == (None, "", {})


ANSWERS: list[tuple[ServerChoice, dict[str, str], str]] = [
    (
        package(environmentVariables=[SECRET]),
        {},
        "packages[0].environmentVariables.API_KEY: API_KEY has no value, and is required",
    ),
    (
        package(environmentVariables=[SECRET]),
        {"API_KEY": ""},
        "packages[0].environmentVariables.API_KEY: API_KEY has no value, and is required",
    ),
    (
        package(packageArguments=[positional(value="{a}", isRequired=True, variables={"a": {}})]),
        {},
        "packages[0].packageArguments[0]: a has no value, and is required",
    ),
    (
        package(packageArguments=[named("--port", format="number")]),
        {"port": "80a"},
        "packages[0].packageArguments[0]: the answer to port cannot be used: it must be a number",
    ),
    (
        package(packageArguments=[named("--all", format="boolean")]),
        {"all": "yes"},
        "packages[0].packageArguments[0]: the answer to all cannot be used: it must be one of true, false",
    ),
    (
        package(packageArguments=[named("--a", default="x", choices=["b", "c"])]),
        {"a": "x"},
        "packages[0].packageArguments[0]: the answer to a cannot be used: it must be one of b, c",
    ),
    (
        package(environmentVariables=[{"name": "A"}]),
        {"A": "a\0"},
        "packages[0].environmentVariables.A: the answer to A cannot be used: it has a NUL character",
    ),
    (remote(url="{a}", variables={"a": {}}), {}, "remotes[0].url: a has no value, and is required"),
    *(
        (remote(url="{a}", variables={"a": {}}), {"a": url}, "remotes[0].url: it is no plain http(s) URL")
        for url in (
            "file:///x",
            "https://good.example@evil.example/mcp",
            "https://good.example\\@evil.example/mcp",
            "https://g\u043eod.example/mcp",
        )
    ),
]


def test_a_missing_or_wrong_answer_names_its_field(subtests: pytest.Subtests) -> None:
    for choice, answers, error in ANSWERS:
        with subtests.test(error), pytest.raises(RegistryError) as caught:
            choice.prepare(answers)
        assert str(caught.value) == error


def test_questions_say_what_is_asked_and_become_inputs_of_a_file() -> None:
    variables = {"key": {"description": "The key"}}
    choice = package(
        environmentVariables=[
            {**SECRET, "description": "From your account", "placeholder": "sk-1"},
            {"name": "MODE", "choices": ["a", "b"], "default": "b"},
            {"name": "BAD", "choices": ["a"], "default": "c"},
            {"name": "ONE", "value": "{key}", "variables": variables},
            {"name": "SAME", "value": "{key}", "variables": variables},
            {"name": "OTHER", "value": "{key}", "variables": {"key": {"description": "Another key"}}},
        ]
    )

    assert choice.questions == (
        Question(name="API_KEY", description="From your account", placeholder="sk-1", required=True, secret=True),
        Question(name="MODE", choices=("a", "b"), default="b"),
        Question(name="BAD", choices=("a",)),
        Question(name="key", description="The key"),
        Question(name="OTHER.key", description="Another key"),
    )
    file = Path("mcp.json")
    assert [question.input(file) for question in choice.questions[:2]] == [
        Input(path=file, id="API_KEY", description="From your account (such as sk-1)", password=True),
        Input(path=file, id="MODE", type="pickString", options=("a", "b"), default="b"),
    ]
    assert choice.environment == {
        "API_KEY": "{API_KEY}",
        "MODE": "{MODE}",
        "BAD": "{BAD}",
        "ONE": "{key}",
        "SAME": "{key}",
        "OTHER": "{OTHER.key}",
    }


def test_a_server_is_read_with_what_the_registry_says_of_it(subtests: pytest.Subtests) -> None:
    detail: dict[str, Any] = {"name": "a/b", "version": "1", "packages": [{**NPM, "registryType": "mcpb"}, NPM]}

    def official(**members: object) -> object:
        return {"server": detail, "_meta": {OFFICIAL_META: members}}

    rows: list[tuple[object, str, tuple[str, ...]]] = [
        (detail, "active", ()),
        (official(status="active", isLatest=True), "active", ()),
        (official(), "active", ()),
        ({"server": detail, "_meta": None}, "active", ()),
        (official(isLatest=False), "active", ("there is a newer version",)),
        (detail | {"status": "deprecated"}, "deprecated", ("its status is deprecated",)),
        (
            official(status="deprecated", statusMessage="use c\x1b", isLatest=True),
            "deprecated",
            ("its status is deprecated: use c\\x1b",),
        ),
    ]
    for data, status, notices in rows:
        with subtests.test(status=status, notices=notices):
            found = read_server_json(data)

            assert (found.name, found.version, found.status, found.notices) == ("a/b", "1", status, notices)
            assert found.usable == found.choices[1:]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([], "server.json: it must be an object"),
        ({"server": 1}, "name: it is missing"),
        ({"name": "--evil"}, "name: it has characters that such a name must not have"),
        ({"name": "a/b", "packages": {}}, "packages: it must be a list"),
        ({"name": "a/b", "_meta": {OFFICIAL_META: 1}}, "_meta: it must be an object"),
    ],
)
def test_what_is_no_server_json_is_an_error_that_names_the_field(data: object, error: str) -> None:
    with pytest.raises(RegistryError) as caught:
        read_server_json(data)
    assert str(caught.value) == error


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
TEXTS = st.text(st.sampled_from("ab-{}@/: \n$\0"), max_size=8)


@saturated
@given(
    members=st.fixed_dictionaries(
        {}, optional=dict.fromkeys([*NPM, "packageArguments", "environmentVariables"], JSON | TEXTS)
    ),
    value=TEXTS,
    answer=TEXTS,
)
def test_nothing_but_a_registry_error_comes_of_any_package(members: dict[str, object], value: str, answer: str) -> None:
    arguments = [positional(value=value, variables={"a": {"isRequired": True}}), positional(valueHint="b")]
    try:
        choice = package(**{"packageArguments": arguments, **members})
        prepared = choice.prepare({"a": answer, "b": answer})
    except RegistryError:
        return
    assert isinstance(prepared.transport, StdioServer)
    assert not prepared.transport.args[1].startswith("-")  # the package
