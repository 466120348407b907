"""Variables, files of variables and inputs: what an entry becomes, what is shown of it, and what stays hidden."""

from __future__ import annotations

import functools
import json
import pickle
import re
import traceback
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host import Client, Stdio, StreamableHttp
from mcp_host.auth import MemoryTokens
from mcp_host.config import DIALECTS, Input, ServerEntry, ToolFilter, ask_inputs, read_servers
from mcp_host.config.deciding import decides
from mcp_host.config.formats.dotenv import parse_env_file
from mcp_host.config.values import EnvironmentVariable, Source
from mcp_host.config.variables import Values
from mcp_host.errors import ConfigError, ConnectFailed
from mcp_host.secret import HIDDEN, Secret
from tests.config.described import written
from tests.extent import on_both, saturated

PIECES = st.sampled_from(
    [
        *("${V}", "${W}", "${V:-d}", "${U:-${V}}", "$V", "%V%", "${env:V}", "${input:V}", "${value:V}", "{env:V}", "{file:/V}"),
        *("${", "}", "$", "%", " | ", "${env:U | env:V}", "${userHome}", "${/}", "${pathSeparator}", "text", " ", "\n", "é"),
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=6).map("".join)


def entry(folder: Path, dialect: str | None = None, **members: object) -> ServerEntry:
    [server] = read_servers(written(folder, "mcp.json", json.dumps(_file(dialect, members))), dialect=dialect).servers
    return server


def _file(dialect: str | None, members: dict[str, object]) -> dict[str, object]:
    data: dict[str, object] = {"a": members}
    for key in reversed(DIALECTS[dialect or "mcp-host"].at[0]):
        data = {key: data}
    return data


def stdio(server: ServerEntry, environment: dict[str, str]) -> Stdio:
    transport = server.expand(environment, home="/home/u").transport
    assert isinstance(transport, Stdio)
    return transport


@saturated
@given(value=TEXTS.filter(bool), texts=st.lists(TEXTS, min_size=5, max_size=5), dialect=st.sampled_from([*DIALECTS]))
def test_what_a_variable_gives_is_not_expanded_again(
    tmp_path_factory: pytest.TempPathFactory, value: str, texts: list[str], dialect: str
) -> None:
    """Each value stays what it is by itself, whatever the environment has, and names are never expanded."""
    names = ["${V}", "$V", "%V%", "${env:V}", "{env:V}"]
    server = entry(tmp_path_factory.mktemp("x"), dialect, command="a", env=dict(zip(names, texts, strict=True)))

    marked = {"V": "\0", "W": "\1"}
    try:
        expected = stdio(server, marked)
    except ConfigError as exc:
        with pytest.raises(ConfigError, match=re.escape(str(exc))):
            stdio(server, {"V": value, "W": value})
        return
    given_env = stdio(server, {"V": value, "W": value}).env

    assert expected.env is not None
    assert given_env == {name: text.replace("\0", value).replace("\1", value) for name, text in expected.env.items()}
    assert list(given_env) == names


@saturated
@given(secret=st.text("abcXYZ019-_%$", min_size=12).map("s3c".__add__), dialect=st.sampled_from([*DIALECTS]))
def test_a_secret_is_in_no_repr_and_no_error(
    tmp_path_factory: pytest.TempPathFactory, secret: str, dialect: str
) -> None:
    folder = tmp_path_factory.mktemp("x")
    literal = entry(folder, dialect, command="a", args=["--token", secret], env={"T": secret, "U": [secret]})
    form = next((form for form in sorted(DIALECTS[dialect].variables) if "V" in form), "")
    server = entry(
        *(folder, dialect),
        url=f"https://example.com/{form}",
        headers={"X-Key": secret, "X-Other": f"{form}-{secret}"},
        oauth={"clientSecret": form or secret},
        auth={"CLIENT_SECRET": secret},
        timeout=secret,
        disabled=[secret],
    )
    plain = secret.replace("$", "").replace("%", "")
    fine = entry(folder, dialect, command="a", args=[form], env={"T": plain})
    login = entry(folder, dialect, url="https://example.com", oauth={"clientId": form or "me", "redirectUri": form})
    said: list[object] = [
        repr(entry(folder, dialect, command="a", args=["--token", plain]).expand()).replace(plain, secret)
    ]
    said += [
        repr(literal),
        repr(server),
        repr(fine),
        literal.warnings,
        literal.problem,
        server.warnings,
        server.problem,
    ]
    for each in (literal, server, fine, login):
        try:
            expanded = each.expand({"V": secret})
            said += [repr(expanded), expanded.shown.replace(secret, "") if each is not fine else expanded.shown]
        except ConfigError:
            said.append(traceback.format_exc())

    assert secret not in repr(said)


def test_a_digest_is_of_the_entry_as_it_is_written_and_one_of_what_it_expands_to(tmp_path: Path) -> None:
    first = entry(tmp_path, command="a", args=["${V}"], env={"K": "1"})
    same = entry(tmp_path, env={"K": "1"}, args=["${V}"], command="a")
    other = entry(tmp_path, command="a", args=["${V}"], env={"K": "2"})
    remote = entry(tmp_path, url="https://example.com/${V}")

    assert first.digest == same.digest != other.digest
    assert first.expand({"V": "1"}).digest == other.expand({"V": "1"}).digest != first.expand({"V": "2"}).digest
    assert remote.expand({"V": "1"}).digest != remote.expand({"V": "2"}).digest


def test_what_has_one_digest_expands_to_one_server_in_all_dialects(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """The dialect of a file may depend on its other entries."""
    written(tmp_path, "V", "of-file")
    texts = ("${V:-d}", "$V", "%V%", "${env:V}", "${input:V}", "{env:V}", "{file:V}", "${file:V}", "${env:V | value:d}")
    for text in texts:
        url = "https://example.com"
        entries: list[dict[str, object]] = [
            {"command": "a", "args": [text]},
            {"command": "a", "env": {"A": text}},
            {"url": f"{url}/{text}"},
            {"url": url, "headers": {"A": text}},
            {"url": url, "oauth": {"clientId": "me", "clientSecret": text}},
        ]
        for members in entries:
            started: dict[str, set[str]] = {}
            for dialect in DIALECTS:
                data = {**_file(dialect, members), "inputs": [{"id": "V"}]}
                [server] = read_servers(written(tmp_path, "mcp.json", json.dumps(data)), dialect=dialect).servers
                expanded = server.expand({"V": "of-env"}, answers=dict.fromkeys(server.inputs, "of-person"))
                given = getattr(expanded.transport, "env" if "command" in members else "headers")
                secret = expanded.oauth and expanded.oauth.client_secret
                digest = server.preview({"V": "of-env"}).digest
                started.setdefault(digest, set()).add(json.dumps([expanded.digest, given, secret]))

            with subtests.test(text, members=str(members)):
                assert [each for each in started.values() if len(each) > 1] == []


def test_what_is_shown_hides_what_variables_may_hide(subtests: pytest.Subtests, tmp_path: Path) -> None:
    inputs = [{"id": "pass", "password": True, "type": "promptString"}, {"id": "city", "type": "promptString"}]
    key = written(tmp_path, "key", "k3y\n")
    args = [
        "${V}",
        "${X:-d}",
        "${input:pass}",
        "${input:city}",
        f"${{file:{key}}}",
        "${file:key}",
        "${userHome}",
        "a b",
    ]
    server = {"command": "${TOOLS}/x", "args": args}
    path = written(tmp_path, "mcp.json", json.dumps({"inputs": inputs, "mcpServers": {"a": server}}))
    [read] = read_servers(path).servers
    answers = dict(zip(read.inputs, ["pa55", "Rome"], strict=True))

    expanded = read.expand({"TOOLS": "/opt", "V": "t0k3n"}, answers=answers, home="/home/u")

    hidden = "'**********'"
    assert expanded.shown == f"/opt/x {hidden} d {hidden} Rome {hidden} {hidden} /home/u 'a b'"
    assert read.shown.startswith("'${TOOLS}/x' '${V}' '${X:-d}'")
    transport = expanded.transport
    assert isinstance(transport, Stdio)
    assert list(transport.command) == ["/opt/x", "t0k3n", "d", "pa55", "Rome", "k3y", "k3y", "/home/u", "a b"]
    remote = entry(tmp_path, "codex", url="https://example.com/?k=1", bearer_token_env_var="V")
    assert remote.expand({"V": "x"}).shown == remote.shown == "https://example.com/?k=1"
    data = {"inputs": inputs, "mcpServers": {"a": {"command": "${input:city}/${input:pass}"}}}
    [asking] = read_servers(written(tmp_path, "mcp.json", json.dumps(data))).servers
    assert (
        asking.expand(answers={each: {"pass": "pa55", "city": "Rome"}[each.id] for each in asking.inputs}).shown
        == "'Rome/**********'"
    )
    assert asking.preview({}).shown == "'${input:city}/${input:pass}'"
    local = entry(tmp_path, url="unix:///srv/${env:V}.sock#/mcp")
    assert local.expand({"V": "docker"}).shown == "http://localhost/mcp at /srv/docker.sock"
    assert local.shown == "http://localhost/mcp at /srv/${env:V}.sock"


@on_both
@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("/opt/s3cret", "cannot start '${P}': [Errno 2] No such file or directory: '${P}'"),
        ("s3cret --key", "No shell splits a command line; it must be a list"),
        ("s3cret=", "command[0] gives a variable, and"),
    ],
)
async def test_no_error_of_a_program_has_what_its_variable_gives(program: str, error: str, tmp_path: Path) -> None:
    """A person who decides on it is shown it; errors are written to logs."""
    server = entry(tmp_path, command="${P}")

    with anyio.fail_after(200), pytest.raises((ConfigError, ConnectFailed)) as caught:
        await Client(server.expand({"P": program}).transport).connect()

    assert error in str(caught.value)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_a_program_that_is_from_a_variable_has_the_name_of_that(tmp_path: Path) -> None:
    by_variable = stdio(entry(tmp_path, command="${P}", args=["x.py"]), {"P": "/opt/s3cret"})
    in_a_folder = stdio(entry(tmp_path, command="${P}/python3", args=["x.py"]), {"P": "/opt"})
    copied = pickle.loads(pickle.dumps(by_variable))

    assert (by_variable.name, in_a_folder.name) == ("${P}", "python3 x.py")
    assert by_variable.identity.partition(" ")[0] == "${P}"
    assert (copied.command, copied.name, repr(copied)) == (["/opt/s3cret", "x.py"], "${P}", "Stdio('${P}')")


def test_what_decides_what_is_run_is_shown_also_if_it_is_from_a_file(tmp_path: Path) -> None:
    """Its project wrote the file: with it, an entry could hide its program."""
    written(tmp_path, "x", "/tmp/x.sh\n")
    local = entry(tmp_path, command="${file:x}", args=["${file:x}"], cwd="${file:x}").preview({})
    socket = entry(tmp_path, url="http://localhost/mcp", socket="${file:x}").preview({})

    assert (local.shown, local.cwd) == ("/tmp/x.sh '**********'", "/tmp/x.sh")
    assert socket.shown == "http://localhost/mcp at /tmp/x.sh"


HOSTS: dict[str, str | None] = {
    "https://example.com:8443/mcp?@x": "example.com",
    "https://good.example@evil.example/mcp": "evil.example",
    "https://good.example\\@evil.example/mcp": "evil.example",
    "https://good.ex\u0430mple/mcp": "good.xn--exmple-4nf",
    "https://good\u3002example/": "good.example",
    "${file:url}": "evil.example",
    "https://${KEY}.example/": "**********.example",
    "${KEY}": None,
    "https://good.example\uff0fevil.example/": None,
    "https://good.example@evil.example:${KEY}/mcp": "evil.example",
    "https://good.example@evil.example:80${KEY}": "evil.example",
    "https://user:${KEY}@evil.example/": "evil.example",
    "${KEY}://evil.ex\u0430mple/": "evil.xn--exmple-4nf",
    "${input:i}//good.example@evil.example:${input:i}?": "evil.example",
    "https://${KEY}.good.ex\u0430mple/": "**********.good.xn--exmple-4nf",
    "https:/${input:i}/good.example/": None,
}


def test_the_host_is_the_one_that_is_connected_to(tmp_path: Path, subtests: pytest.Subtests) -> None:
    written(tmp_path, "url", "https://evil.example/mcp")
    for url, host in HOSTS.items():
        with subtests.test(url):
            assert entry(tmp_path, url=url).preview({"KEY": "s3cret"}).host == host
    assert entry(tmp_path, url="http://localhost/", socket="/run/x.sock").preview({}).host is None


def test_no_answer_has_another_host_than_the_one_that_was_shown(tmp_path: Path, subtests: pytest.Subtests) -> None:
    written(tmp_path, "at", "https")
    for url, answer, host in (
        ("https://${input:i}@good.example/", "evil.example/#", None),
        ("https://${input:i}.good.example/", "evil.example\\", None),
        ("https://good.example${input:i}/", ":@evil.example", None),
        ("${file:at}://${input:i}.good.example", "a", "https://a.good.example"),
        ("https://good.example:${input:i}/", "8443", "https://good.example:8443/"),
        ("https://good.example/${input:i}", "a@b", "https://good.example/a@b"),
        ("${input:i}/mcp", "https://a.example", "https://a.example/mcp"),
        ("${input:i}:80/mcp", "http://a.example", "http://a.example/mcp"),
        ("${input:i}", "https://a.example/?x#y", "https://a.example/"),
        ("http${input:i}://good.example/", "s", "https://good.example/"),
        ("${input:i}://good.example/", "https://evil.example/?", None),
        ("https:/${input:i}/good.example/", "/evil.example", None),
        ("${input:i}.good.example/", "https://evil.example/", None),
        ("${input:i}//good.example/", "https://evil.example/?", None),
        ("${input:i}:80@good.example/", "https://evil.example/", None),
        ("${input:i}${file:at}", "https://evil.example/", None),
    ):
        server = entry(tmp_path, url=url)
        with subtests.test(url):
            expanded = functools.partial(server.expand, {}, answers=dict.fromkeys(server.inputs, answer))
            if host is not None:
                assert expanded().transport.name == host
                continue
            with pytest.raises(ConfigError, match="url: the input 'i' would name another host"):
                expanded()


def test_what_a_variable_has_without_an_answer_is_shown_where_it_decides(tmp_path: Path) -> None:
    text = "${input:debug | env:V | value:--require=./x.js}"
    server = entry(tmp_path, command="a", env={"NODE_OPTIONS": text})
    for environment, said in (({}, "--require=./x.js"), ({"V": "mine"}, "**********")):
        assert server.preview(environment).variables == {"NODE_OPTIONS": said}
    assert entry(tmp_path, url="https://${input:x}.example/").preview({}).host == "**********.example"
    with pytest.raises(ConfigError, match="would name another host"):
        entry(tmp_path, url="https://${input:x@good.example/}.example/").preview({})


SENT_TO = [
    ("OPENAI_BASE_URL", "https://sk-evil1234.example/v1", "https://sk-evil1234.example/v1", f"https://sk-evil1234.example{HIDDEN}"),
    ("GITHUB_HOST", "hf_evil1234.example", "hf_evil1234.example", "hf_evil1234.example"),
    ("API_URLS", "a,https:/hf_evil1234.example", "a,https:/hf_evil1234.example", "a,https:/hf_evil1234.example"),
    ("PGHOST1", "u:pw@evil.example:1/db?token=t0k3n", "***@evil.example:1/db?token=***", f"***@evil.example:1{HIDDEN}"),
    ("X", r'{"token":"t","b":"wss:\eyJevil1234"}', r'{"token":"t","b":"wss:\eyJevil1234"}', rf"{HIDDEN}wss:\eyJevil1234{HIDDEN}"),
    ("API_KEY", "sk-1234567890", "***", HIDDEN),
    ("KEY", "sk-1234567890", "***", HIDDEN),
]  # fmt: skip  # one variable on each line


def test_where_a_server_sends_what_it_gets_is_shown_although_it_looks_like_a_secret(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """A secret of the user in another variable goes there."""
    for name, value, shown, shown_of_file in SENT_TO:
        with subtests.test(name):
            written(tmp_path, "x", value)
            written(tmp_path, "x.env", f"{name}={value}")
            by_literal = entry(tmp_path, command="a", env={name: value})
            by_file = entry(tmp_path, command="a", env={name: "${file:x}"})
            by_env_file = entry(tmp_path, command="a", envFile="x.env")

            previews = [each.preview({}) for each in (by_literal, by_file, by_env_file)]

            values = [shown, shown_of_file, shown_of_file]
            assert [each.variables for each in previews] == [{name: text} for text in values]
            assert {each.deciding for each in previews} == {() if name.endswith("KEY") else (name,)}
            assert entry(tmp_path, url="https://a.example", headers={name: value}).preview({}).variables == {
                name: shown
            }


def test_the_whole_path_of_a_file_is_told(tmp_path: Path) -> None:
    path = "./" * 300 + "key"
    assert entry(tmp_path, command="a", args=[f"${{file:{path}}}"]).variables == (f"args[0]: the file {path}",)


def test_another_description_of_an_input_is_another_server(tmp_path: Path) -> None:
    digests = set()
    different: tuple[dict[str, object], ...] = (
        {},
        {"default": "a"},
        {"default": "b"},
        {"type": "pickString", "options": ["b"]},
        {"password": True},
    )
    for others in different:
        data = {"inputs": [{"id": "x", **others}], "mcpServers": {"a": {"command": "a", "args": ["${input:x}"]}}}
        [server] = read_servers(written(tmp_path, "mcp.json", json.dumps(data))).servers
        digests.add(server.preview({}).digest)
    assert len(digests) == len(different)


def test_what_was_shown_is_what_it_becomes(tmp_path: Path) -> None:
    server = entry(tmp_path, command="a", args=["${file:x}"], envFile="x", cwd="link")
    written(tmp_path, "x", "A=1")
    (tmp_path / "link").symlink_to("first")
    preview = server.preview({})
    written(tmp_path, "x", "A=2")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("second")

    transport = preview.expand().transport

    assert isinstance(transport, Stdio)
    assert (transport.command, transport.env, transport.cwd) == (["a", "A=1"], {"A": "1"}, f"{tmp_path}/first")
    assert "A=1" not in repr(preview)


def test_no_answer_names_a_file_that_was_not_shown(tmp_path: Path) -> None:
    written(tmp_path, ".env.${input:i}", "A=1")
    written(tmp_path, ".env.b", "PATH=/evil")
    for args in ([], ["${file:.env.b}"]):  # that the file is read for something else does not show what it decides
        server = entry(tmp_path, command="a", args=args, envFile=".env.${input:i}")
        answers = dict.fromkeys(server.inputs, "b")

        expanded = server.expand({}, answers=answers).transport
        assert isinstance(expanded, Stdio)
        assert expanded.env == {"PATH": "/evil"}
        with pytest.raises(ConfigError, match=r"env_file: it is not the file that was shown: no answer names another$"):
            server.preview({}).expand(answers)


def test_no_answer_leads_by_a_link_that_was_not_shown(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """A link of the project that an answer chooses. Those of the person, and in the path of the project, are none of it."""
    for name in ("home", "work", "real/project/sub"):
        (tmp_path / name).mkdir(parents=True)
    for link, target in {
        "project": "real/project",
        "real/project/main": "home",
        "mine": "work",
        "real/side": "home",
        "again": "real/project",
    }.items():
        (tmp_path / link).symlink_to(tmp_path / target)
    for path, answer, real in (
        ("${input:i}", "sub", "real/project/sub"),
        ("${workspaceFolder}/${input:i}", "sub", "real/project/sub"),
        ("${input:i}", str(tmp_path / "mine"), "work"),
        (f"{tmp_path}/again/${{input:i}}", "sub", "real/project/sub"),
        (f"{tmp_path}/again/${{input:i}}", "main", None),  # as /proc/self/cwd does
        ("${input:i}", str(tmp_path / "again/../project/main"), None),
        ("${input:i}", "main", None),
        ("./${input:i}", "main/..", None),
        ("${workspaceFolder}/${input:i}", "main", None),
        ("../${input:i}", "side", None),
    ):
        for members in ({"command": "a", "cwd": path}, {"url": "http://localhost/", "socket": path}):
            server = entry(tmp_path / "project", **members)
            preview = server.preview({}, workspace=tmp_path / "project")
            look = functools.partial(preview.expand, dict.fromkeys(server.inputs, answer))
            with subtests.test(path, answer=answer, members=str(members)):
                if real is None:
                    with pytest.raises(ConfigError, match="with the answer, it leads by a link to "):
                        look()
                    continue
                transport = look().transport
                assert isinstance(transport, Stdio | StreamableHttp)
                found = transport.cwd if isinstance(transport, Stdio) else transport.uds
                assert found == str(tmp_path / real)
    for name in ("a\0", "a\ud800", "a/../" * 1_000):
        with subtests.test(repr(name)), pytest.raises(ConfigError, match="cwd: there can be no such name"):
            entry(tmp_path, command="a", cwd=name).preview({})


def test_a_variable_that_is_only_passed_on_may_be_set_later(tmp_path: Path) -> None:
    written(tmp_path, ".env", "PATH=/evil")
    server = entry(tmp_path, command="a", env_vars=["V"], env={"W": "${W}"})
    hiding = entry(tmp_path, command="a", envFile=".env", env_vars=["PATH"])

    assert server.preview({"W": "1"}).digest == server.preview({"W": "2", "V": "1"}).digest
    assert hiding.preview({"PATH": "/bin"}).digest != hiding.preview({}).digest


def test_what_variables_give_is_bounded(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """A small file could take all memory and time before a person is asked."""
    written(tmp_path, "big", "x" * 60_000)
    for index in range(101):
        written(tmp_path, f"f{index}", "x")
    for args, error in (
        (["${file:big}" * 3], r"args\[0\]: it becomes longer than 131,072 characters"),
        (["${file:big}"] * 40, "server 'a': its values become longer than 2,097,152 characters"),
        ([f"${{file:f{index}}}" for index in range(101)], r"args\[100\]: its variables are from more than 100 files"),
    ):
        with subtests.test(error), pytest.raises(ConfigError, match=error):
            entry(tmp_path, command="a", args=args).preview({})


def test_another_order_of_keys_is_the_same_server(tmp_path: Path) -> None:
    digests = set()
    for names in (("A", "B"), ("B", "A")):
        server = entry(tmp_path, command="a", env={name: f"${{input:{name}}}${{V}}" for name in names})
        digests.add((server.digest, server.preview({"V": "v"}).digest))
    assert len(digests) == 1


def test_where_links_among_the_files_of_values_lead_is_told(tmp_path: Path) -> None:
    """A project's file of any name may be one of the user's."""
    home = written(tmp_path, "home/.token", "t0k3n")
    written(tmp_path, "project/plain", "x")
    for link in ("project/key.txt", "project/.env", "outside"):
        (tmp_path / link).symlink_to(home)
    headers = {"A": "${file:key.txt} ${file:key.txt}", "B": "${file:plain}", "C": "${file:../home/.token}"}
    headers |= {"D": f"${{file:{tmp_path}/outside}}", "E": f"${{file:{home}}}"}

    remote = entry(tmp_path / "project", url="https://example.com", headers=headers).preview({})
    local = entry(tmp_path / "project", command="a", envFile=".env").preview({})

    assert remote.links == (f"headers.A: key.txt leads to {home}", f"headers.D: {tmp_path}/outside leads to {home}")
    assert local.links == (f"env_file: .env leads to {home}",)


def test_variables_of_the_environment_have_no_case_on_windows(tmp_path: Path) -> None:
    """There `os.environ` has all names in upper case, and people write ``${env:ProgramFiles}``."""
    environment = {"PROGRAMFILES": "p", "Path": "q"}

    def values(platform: str) -> list[str | None]:
        each = Values(
            forms=DIALECTS["cursor"].forms,
            environment=environment,
            home="/home/u",
            workspace=None,
            folder=tmp_path,
            inputs={},
            answers={},
            platform=platform,
        )
        expansions = [
            each.expand("env.A", Secret("${env:Path}")),
            each.expand("env.B", EnvironmentVariable("ProgramFiles", optional=True)),
        ]
        return [None if expansion is None else str.__str__(expansion.text) for expansion in expansions]

    assert values("linux") == ["q", None]
    assert values("win32") == ["q", "p"]


def test_the_file_of_a_value_may_be_in_the_users_folder(tmp_path: Path) -> None:
    """Windsurf: "Tilde paths (e.g. `~/secrets/key.txt`) are supported"; OpenCode: "absolute paths starting with `/` or `~`"."""
    written(tmp_path, "home/.secrets/key", "k3y\n")
    written(tmp_path, "~x", "other")
    for dialect, form in (("windsurf", "${{file:{}}}"), ("opencode", "{{file:{}}}"), ("mcp-host", "${{file:{}}}")):
        server = entry(tmp_path, dialect, command="a", args=[form.format("~/.secrets/key"), form.format("~x")])

        transport = server.expand({}, home=tmp_path / "home").transport

        assert isinstance(transport, Stdio)
        assert list(transport.command) == ["a", "k3y", "other"]
        assert server.variables == ("args[0]: the file ~/.secrets/key", "args[1]: the file ~x")


def test_a_file_of_variables_is_read_and_the_entry_wins(tmp_path: Path) -> None:
    written(tmp_path, "x/.env", 'A=file\nB="b # c"\nnot a variable\nTWICE=${A}')
    server = entry(tmp_path / "x/.vscode", "vscode", command="a", envFile="${workspaceFolder}/.env", env={"A": "entry"})
    relative = entry(tmp_path / "x", "cursor", command="a", envFile=".env")

    expanded = server.expand({}, workspace=tmp_path / "x")

    assert isinstance(expanded.transport, Stdio)
    assert expanded.transport.env == {"A": "entry", "B": "b # c", "TWICE": "${A}"}
    assert "b # c" not in repr(expanded.transport.env)
    assert expanded.warnings == ("env_file: its line 3 is no variable",)
    assert stdio(relative, {}).env == {"A": "file", "B": "b # c", "TWICE": "${A}"}
    written(tmp_path, "x/.env", "?\n" * 300)
    assert relative.expand({}).warnings[100:] == ("... and 200 more like these",)


def test_a_relative_workspace_or_home_is_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "x/.env", "A=file")
    server = entry(
        tmp_path,
        "vscode",
        command="a",
        cwd="${workspaceFolder}",
        envFile="${workspaceFolder}/.env",
        args=["${userHome}"],
    )
    monkeypatch.chdir(tmp_path)

    transport = server.expand({}, workspace="x", home="h").transport

    assert isinstance(transport, Stdio)
    assert (transport.env, transport.cwd) == ({"A": "file"}, str(tmp_path / "x"))
    assert transport.command == ["a", str(tmp_path / "h")]
    assert server.preview({}, workspace="x").env_file == str(tmp_path / "x/.env")


def test_variables_that_decide_what_is_run_are_known_by_name_and_secrets_are_none(subtests: pytest.Subtests) -> None:
    deciding = (
        *("PATH", "Path", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "ENV"),
        *("PERL5OPT", "RUBYOPT", "GIT_SSH_COMMAND", "UV_INDEX_URL", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE"),
        *("REQUESTS_CA_BUNDLE", "npm_config_registry", "npm_execpath", "PIPX_DEFAULT_PYTHON", "OPENSSL_CONF"),
        *("GOFLAGS", "RUSTC_WRAPPER", "JAVA_TOOL_OPTIONS", "XDG_CONFIG_HOME", "UserProfile", "LOCALAPPDATA"),
        *("VOLTA_HOME", "PYENV_VERSION", "VIRTUAL_ENV", "CONTAINER_HOST", "KUBECONFIG", "BASH_FUNC_npx%%"),
        *("SSH_ASKPASS", "EDITOR", "GOENV", "TS_NODE_REQUIRE", "ZDOTDIR", "PS4", "DOTNET_STARTUP_HOOKS"),
        *("PSModulePath", "YARN_RC_FILENAME", "PREFIX", "COMPOSE_FILE", "NIX_PATH", "PIPENV_PIPFILE", "PEX_MODULE"),
        *("NUGET_PACKAGES", "MSBuildSDKsPath", "R_PROFILE", "ERL_FLAGS", "__PYVENV_LAUNCHER__", "JAVACMD"),
        *(
            "HGRCPATH",
            "RSYNC_RSH",
            "AWS_CONFIG_FILE",
            "CLOUDSDK_PYTHON",
            "GOAUTH",
            "GOCACHEPROG",
            "GOWORK",
            "PKG_CONFIG",
        ),
        *("ESBUILD_BINARY_PATH", "ELIXIR_ERL_OPTIONS", "PUB_CACHE", "COURSIER_REPOSITORIES", "COMPOSER", "JDK_HOME"),
        *("DEVELOPER_DIR", "MAKEFILES", "GNUMAKEFLAGS", "LDSHARED", "CFLAGS", "CMAKE_TOOLCHAIN_FILE", "CDPATH"),
        *("GNUPGHOME", "GIO_EXTRA_MODULES", "GTK3_MODULES", "KRB5_CONFIG", "DBUS_SESSION_BUS_ADDRESS", "ODBCSYSINI"),
        *("AWS_SHARED_CREDENTIALS_FILE", "AZURE_EXTENSION_DIR", "GH_CONFIG_DIR", "FLUTTER_ROOT", "MVNW_REPOURL"),
        *("HEX_MIRROR", "MANPAGER", "PROGRAMW6432", "COMMONPROGRAMFILES", "SETUPTOOLS_USE_DISTUTILS", "PY_PYTHON3"),
        *("CHROME_BIN", "PUPPETEER_EXECUTABLE", "FZF_DEFAULT_COMMAND"),
        *("SBT_OPTS", "N_PREFIX", "X_REGISTRY", "GUILE_LOAD_PATH", "OPAMROOT", "HOSTALIASES", "COMPlus_X"),
    )
    others = (
        *("MODE", "PATHS", "NO_PROXY", "TMPDIR", "GOOGLE_CLOUD_PROJECT", "GITHUB_TOKEN", "GOOGLE_API_KEY"),
        *("HEX_API_KEY", "FLAGS", "AZURE_DIR", "UV_PUBLISH_TOKEN", "NPM_CONFIG__AUTH", "DOCKER_API_KEY", "API_ENV", ""),
    )
    for name in (*deciding, *others):
        with subtests.test(name):
            assert decides(name) == (name in deciding)


def test_servers_of_a_project_are_started_in_its_folder(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """The folder is the one that is shown: links are followed, and the current folder does not matter."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name, cwd, expected in [
        (".mcp.json", None, str(tmp_path)),
        (".cursor/mcp.json", "sub", f"{tmp_path}/sub"),
        (".vscode/mcp.json", "/srv", "/srv"),
        (".mcp.json", "link/x", f"{tmp_path}/elsewhere/x"),
        ("other.json", None, None),
        ("other.json", "sub", f"{tmp_path}/sub"),
    ]:
        with subtests.test(name, cwd=cwd):
            text = json.dumps({"mcpServers": {"a": {"command": "a", "cwd": cwd}}})
            [server] = read_servers(written(tmp_path, name, text)).servers

            assert stdio(server, {}).cwd == server.preview({}).cwd == expected
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project").symlink_to(tmp_path / "elsewhere")
    [server] = read_servers(written(tmp_path, "project/.mcp.json", '{"mcpServers": {"a": {"command": "a"}}}')).servers
    assert stdio(server, {}).cwd == server.preview({}).cwd == f"{tmp_path}/elsewhere"
    (tmp_path / "run.sock").symlink_to("other.sock")
    socket = entry(tmp_path, url="http://localhost/", socket="run.sock").expand({})
    assert socket.shown == f"http://localhost/ at {tmp_path}/other.sock"


def test_a_file_that_is_no_text_or_too_large_is_an_error(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for content, reason in [(b"A=\xff", "it is not UTF-8"), (b"x" * 70_000, "it has more than 65536 bytes")]:
        with subtests.test(reason):
            path = written(tmp_path, ".env", content)
            with pytest.raises(ConfigError) as caught:
                entry(tmp_path, "vscode", command="a", envFile=str(path)).expand({})

            assert str(caught.value) == (
                f"{tmp_path}/mcp.json: server 'a': env_file: the file {path} cannot be read: {reason}"
            )
            assert (caught.value.server, caught.value.field) == ("a", "env_file")


ENV_FILES: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "A=1\nB = 2 \n\n# comment\nexport C=3": ({"A": "1", "B": "2", "C": "3"}, ()),
    "A=\nB=''\nC=\"\"\nD= # c\nE=#x": ({"A": "", "B": "", "C": "", "D": "", "E": "#x"}, ()),
    "A=x # comment\nB=x#y\nC='x # y' # c\nD=\"x # y\"": ({"A": "x", "B": "x#y", "C": "x # y", "D": "x # y"}, ()),
    "A='it''s'\nB=2": ({"B": "2"}, (1,)),
    'A="one\\ntwo\\t\\"q\\" \\\\ \\$"\nB=\'one\\ntwo\'': ({"A": 'one\ntwo\t"q" \\ $', "B": "one\\ntwo"}, ()),
    'KEY="-----BEGIN\nabc\n-----END"\nB=2': ({"KEY": "-----BEGIN\nabc\n-----END", "B": "2"}, ()),
    "A=a=b==\nURL=https://x/#frag": ({"A": "a=b==", "URL": "https://x/#frag"}, ()),
    "A=it's\nB=say \"x\"": ({"A": "it's", "B": 'say "x"'}, ()),
    'A="never closed\nB=2': ({"B": "2"}, (1,)),
    "A=1\r\nB=2\r\n": ({"A": "1", "B": "2"}, ()),
    "A=1\nA=2": ({"A": "2"}, ()),
    "1A=1\njust text\nB": ({}, (1, 2, 3)),
    "": ({}, ()),
}  # fmt: skip


def test_the_lines_of_a_file_of_variables(subtests: pytest.Subtests) -> None:
    for text, expected in ENV_FILES.items():
        with subtests.test(text):
            assert parse_env_file(text) == expected


@on_both
async def test_each_input_is_asked_for_once_and_what_is_not_answered_is_missing(tmp_path: Path) -> None:
    data = {
        "inputs": [
            {"id": "key", "type": "promptString", "description": "API key", "password": True},
            {"id": "city", "type": "pickString", "options": ["Rome"], "default": "Rome"},
            {"id": "none", "type": "promptString"},
            {"id": "cmd", "type": "command", "command": "x"},
            {"id": "unused", "type": "promptString"},
        ],
        "servers": {
            "a": {"command": "a", "args": ["${input:key}", "${input:city}", "${input:key}"]},
            "b": {"url": "https://example.com", "headers": {"A": "${input:key}", "B": "${input:none}", "C": "${input:cmd}"}},
        },
    }  # fmt: skip
    path = written(tmp_path, "mcp.json", json.dumps(data))
    servers = read_servers(path).servers
    key = Input(path=path, id="key", description="API key", password=True)
    city = Input(path=path, id="city", type="pickString", options=("Rome",), default="Rome")
    none = Input(path=path, id="none")
    asked: list[Input] = []

    async def ask(each: Input) -> str | None:
        asked.append(each)
        return {"key": "s3cret", "city": "Paris"}.get(each.id)

    answers = await ask_inputs(servers, ask)

    assert asked == [key, city, none]
    assert answers == {key: "s3cret"}
    assert "s3cret" not in repr(answers)
    assert await ask_inputs(servers, lambda each: each.default) == {city: "Rome"}
    with pytest.raises(TypeError, match="ask has to be a function"):
        await ask_inputs(servers, "key")  # type: ignore[arg-type]  # the error is the test


@on_both
async def test_an_answer_in_a_store_is_not_asked_for_again_while_it_is_an_option(tmp_path: Path) -> None:
    def servers(*options: str) -> tuple[ServerEntry, ...]:
        inputs = [{"id": "city", "type": "pickString", "options": options}, {"id": "key", "type": "promptString"}]
        entry = {"command": "a", "args": ["${input:city}", "${input:key}"]}
        return read_servers(
            written(tmp_path, "mcp.json", json.dumps({"inputs": inputs, "servers": {"a": entry}}))
        ).servers

    store, asked = MemoryTokens(), list[str]()

    async def answers(*options: str) -> dict[str, str]:
        def ask(each: Input) -> str | None:
            asked.append(each.id)
            return None if each.id == "key" and len(asked) == 2 else f"{each.id} {len(asked)}"

        return {each.id: answer for each, answer in (await ask_inputs(servers(*options), ask, store=store)).items()}

    assert await answers("city 1") == {"city": "city 1"}
    assert await answers("city 1") == {"city": "city 1", "key": "key 3"}
    assert await answers("city 1") == {"city": "city 1", "key": "key 3"}
    assert await answers("city 4") == {"city": "city 4", "key": "key 3"}
    assert await answers("city 4", "city 1") == {"city": "city 4", "key": "key 3"}
    assert asked == ["city", "key", "key", "city"]
    [key] = [each for each in servers()[0].inputs if each.id == "key"]
    assert await store.take(key.key) == "key 3"
    assert await answers("city 4") == {"city": "city 4", "key": "key 5"}


def test_where_the_variables_are_from_is_told_without_values_of_the_file(tmp_path: Path) -> None:
    local = entry(tmp_path, command="${A}", args=["${env:B}${C:-s3cret}"], env={"D": "${input:e}", "F": "${userHome}"})
    remote = entry(tmp_path, "codex", url="https://example.com", env_http_headers={"X": "G"}, bearer_token_env_var="H")
    vault = entry(tmp_path, "sep-2633", url="https://example.com", headers={"X": "${op://v/i | env:I | value:s3cret}"})

    assert local.variables == (
        *("command: the variable A", "args[0]: the variable B", "args[0]: the variable C, or else a text of the file"),
        *("env.D: the input e", "env.F: ${userHome}"),
    )
    assert remote.variables == ("headers.X: the variable G", "headers.Authorization: the variable H")
    assert vault.variables == ("headers.X: op (not supported), or else the variable I, or else a text of the file",)


def test_a_filter_lets_through_what_is_allowed_and_not_excluded(subtests: pytest.Subtests) -> None:
    for tools, names in [
        (ToolFilter(), {"a", "b", "c"}),
        (ToolFilter(frozenset({"a", "b"}), frozenset({"b"})), {"a"}),
        (ToolFilter(exclude=frozenset({"b"})), {"a", "c"}),
        (ToolFilter(frozenset()), set()),
    ]:
        with subtests.test(repr(tools)):
            assert {name for name in ("a", "b", "c") if tools.allows(name)} == names


def test_an_entry_that_is_made_by_hand_expands_too(tmp_path: Path) -> None:
    source = Source(path=tmp_path / "x.json", dialect="mcp-host")
    made = ServerEntry(name="a", transport=None, source=source, digest="")

    assert made.shown == ""
    with pytest.raises(ConfigError, match="server 'a': it has no transport"):
        made.expand()


def test_the_environment_is_that_of_the_process_and_the_home_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_HOST_TEST", "here")
    monkeypatch.setenv("HOME", "/home/someone")

    transport = entry(tmp_path, url="https://example.com/${MCP_HOST_TEST}${userHome}").expand().transport

    assert isinstance(transport, StreamableHttp)
    assert transport.url == "https://example.com/here/home/someone"
