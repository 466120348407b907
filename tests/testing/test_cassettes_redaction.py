"""No secret with a sensitive name reaches the file, wherever it stands, and other names are kept."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_host import Stdio
from mcp_host.config import ask_inputs, read_servers
from mcp_host.testing import Cassette, CassetteError
from mcp_host.testing.cassettes.file import read
from mcp_host.testing.cassettes.redaction import REDACTED, Redaction
from mcp_host.testing.cassettes.secret_names import (
    ENDINGS,
    NOT_IN_JSON,
    PAIRS,
    SECRET_KEYS,
    SECRETS,
    is_secret_member,
    is_secret_name,
    is_secret_parameter,
)
from mcp_host.testing.cassettes.texts import mapped
from mcp_host.transports.base import Transport
from tests.extent import THOROUGH
from tests.faults.measure import grows_linearly

ANYWHERE = [
    *("password", "userPassword", "PGPASSWORD", "passWord", "pass_phrase", "DB_PWD", "pwd", "passcode", "clientSecret"),
    *("api_key", "apiKey", "x-api-key", "APIKeys", "APIKEYs", "APIkey", "API_KEY_2", "apikey2", "accessKey"),
    *("access_key", "accesskey", "AccountKey", "subscriptionKey", "privateKey", "AWS_SECRET_ACCESS_KEY"),
    *("accessToken", "authToken", "sessionToken", "apiToken", "X-AuthToken", "--authtoken", "NGROK_AUTHTOKEN"),
    *("HFTOKEN", "GITHUBTOKEN", "id_token", "github_pat", "DB_PASS", "OAuth2Token", "authorization_token"),
    *("Authorization", "authorization", "PROXY-AUTHORIZATION", "set-cookie", "cookies", "jwt", "bearer"),
    *("private_key_pem", "GOOGLE_CREDENTIALS_JSON", "SSH_PRIVATE_KEY_BASE64", "SECRET_KEY_BASE", "SharedAccessKey"),
    *("credentials", "connectionString", "client_assertion", "code_verifier", "device_code", "openai-project"),
]
ONLY_OUTSIDE_OF_JSON = [
    *("key", "token", "tokens", "auth", "X-Auth", "sig", "signature", "X-Amz-Signature", "pat", "pass"),
    *("OPENAIKEY", "deploy-key", "openai-organization", "idempotency-key"),
]
NOWHERE = [
    *("monkey", "turkeys", "hockey", "keyboard", "key_id", "tokenizer", "token_type", "tokenCount", "secretary"),
    *("max_tokens", "maxTokens", "inputTokens", "x-ratelimit-remaining-tokens", "progressToken", "nextPageToken"),
    *("page_token", "next_token", "eos_token", "path", "PATH", "OLDPWD", "base64", "json", "bypass", "compass"),
    *("author", "cursor", "signed", "", "_", "1"),
]
ONLY_IN_PARAMETERS = ["code", "assertion"]
IN_JSON_A_NAME = ["primary_key", "cacheKey", "prompt_cache_key", "public_key", "thought_signature", "thoughtSignature"]


def test_the_last_words_of_a_name_say_whether_it_is_of_a_secret() -> None:
    outside = {*ANYWHERE, *ONLY_OUTSIDE_OF_JSON, *IN_JSON_A_NAME}
    names = {*outside, *NOWHERE, *ONLY_IN_PARAMETERS}

    assert {*filter(is_secret_name, names)} == outside
    assert {*filter(is_secret_parameter, names)} == {*outside, *ONLY_IN_PARAMETERS}
    assert {*filter(is_secret_member, names)} == {*ANYWHERE}


def test_the_documentation_lists_the_words_of_the_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cassettes.md").read_text()
    rule, _, in_json, pairs = page.split("### Which names are sensitive\n\n")[1].split("\n\n")[:4]
    words = re.findall(r"`(\w+)`", rule.partition(". Words")[0])
    keys = in_json.partition("only after ")[2].partition(";")[0]
    documented = pairs.partition("end with ")[2].partition("; in URLs")[0].lower()

    assert words[:11] == list(ENDINGS)
    assert set(words) == {*ENDINGS, *SECRETS, *NOT_IN_JSON}
    assert re.split(r",?\s+(?:or )?", keys) == list(SECRET_KEYS)
    assert {tuple(pair.split()) for pair in re.split(r",\s+|\s+or\s+", documented)} == PAIRS


STYLES: list[Callable[[list[str]], str]] = [
    "_".join,
    "-".join,
    ".".join,
    "".join,
    lambda words: "_".join(words).upper(),
    lambda words: "".join(words).upper(),
    lambda words: "-".join(word.title() for word in words),
    lambda words: "".join(word.title() for word in words),
    lambda words: words[0] + "".join(word.title() for word in words[1:]),
]
NAMES = st.builds(
    lambda first, last, style, end: style([*first, *last]) + end,
    st.sampled_from([[], ["my"], ["server", "db"]]),
    st.sampled_from(
        [
            *(["api", "key"], ["private", "key"], ["subscription", "key"], ["access", "token"], ["hf", "token"]),
            *(["client", "secret"], ["password"], ["db", "passwd"], ["passphrase"], ["credential"], ["authorization"]),
        ]
    ),
    st.sampled_from(STYLES),
    st.sampled_from(["", "s", "2", "_2"]),
)
TEXTS = st.text("QXZJVKWY0189-_.~+/=%&;,:@!#'\"()\\ ", min_size=8, max_size=40).filter(
    lambda text: text == text.strip()
)
LINES = st.text('QXZJVKWYé€\t\n\\" ', min_size=8, max_size=40)


def recorded(
    path: Path, echoed: str, url: str = "http://localhost/", *, servers: Sequence[Transport] = (), **request: Any
) -> list[str]:
    """All strings in the file, also names of members, after a *request* whose answer has *echoed* in it."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(401, text=f"no {echoed}.")

    with Cassette(path, record_mode="all") as cassette:
        for server in servers:
            cassette.transport(server)
        transport = cassette.http_transport(inner=httpx2.MockTransport(answer))
        with httpx2.Client(transport=transport) as client:
            client.post(url, **request)
    found = []

    def collect(text: str) -> str:
        found.append(text)
        return text

    mapped(json.loads(path.read_text()), collect)
    return found


PLACES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "header": lambda name, secret: {"headers": {name: secret}},
    "header with a scheme": lambda name, secret: {"headers": {name: f"Bearer {secret}"}},
    "query": lambda name, secret: {"params": {name: secret}},
    "form": lambda name, secret: {"data": {name: secret}},
    "member": lambda name, secret: {"json": {name: secret}},
    "nested": lambda name, secret: {"json": [{"a": [{name: secret}]}]},
    "list": lambda name, secret: {"json": {"a": {name: ["x", [secret]]}}},
    "JSON in a text": lambda name, secret: {"json": {"arguments": json.dumps({"a": {name: secret}})}},
    "list in a text": lambda name, secret: {"json": {"arguments": json.dumps({"a": {name: ["x", secret]}})}},
    "variable": lambda name, secret: {"servers": [Stdio(["any"], env={name: secret})]},
    "JSON in a variable": lambda name, secret: {"servers": [Stdio(["any"], env={"A": json.dumps({name: secret})})]},
    "option": lambda name, secret: {"servers": [Stdio(["any", f"--{name}", secret])]},
    "option with =": lambda name, secret: {"servers": [Stdio(["any", f"--{name}={secret}"])]},
    "variable in an option": lambda name, secret: {"servers": [Stdio(["any", "-e", f"{name}={secret}"])]},
    "header in an option": lambda name, secret: {"servers": [Stdio(["any", "--header", f"{name}: Bearer {secret}"])]},
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@settings(
    max_examples=60 if THOROUGH else 12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(name=NAMES, secret=TEXTS)
def test_no_value_of_a_secret_name_is_in_the_file(
    path: Path, place: Callable[[str, str], dict[str, Any]], name: str, secret: str
) -> None:
    """Where it stands, and in what the provider echoes: as it is, in a URL, in hexadecimal digits and in base64."""
    raw = secret.encode()
    encoded = [base64.b64encode(before + raw + b"!").decode() for before in (b"", b"x", b"xy")]
    forms = [secret, quote(secret, safe=""), quote(secret, safe="!*'()"), raw.hex(), *encoded]
    texts = recorded(path, " | ".join(forms), **place(name, secret))

    assert [text for text in texts for form in forms if form in text] == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(secret=LINES)
def test_no_line_of_a_secret_is_in_the_file(path: Path, secret: str) -> None:
    """If it is long enough to be known."""
    texts = recorded(path, secret, json={"private_key": secret, "lines": secret.splitlines()})

    lines = [line.strip() for line in secret.split("\n") if len(line.strip()) >= 8]
    assert [text for text in texts for part in [secret, *lines] if part in text] == []


@pytest.mark.parametrize("answer", ["hunter2", "correct", "QZXJ VKWY-0189"])
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "any", "env": {"WHO": "${input:who}"}},
        {"command": "any", "args": ["--who=me:${input:who}"]},
        {"url": "http://localhost/", "headers": {"X-Who": "me:${input:who}"}},
        {"url": "http://localhost/${input:who}/mcp"},
    ],
    ids=["env", "args", "headers", "url"],
)
async def test_no_answer_to_a_password_input_of_a_file_of_servers_is_in_the_file(
    path: Path, tmp_path: Path, entry: dict[str, object], answer: str
) -> None:
    """Under any name, and however short it is. The answer to another input is no secret."""
    inputs = [{"id": "who", "type": "promptString", "password": True}, {"id": "where", "type": "promptString"}]
    servers = {"shop": entry, "other": {"command": "any", "args": ["${input:where}"]}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"servers": servers, "inputs": inputs}))
    shop, other = read_servers(file, dialect="vscode").servers
    answers = await ask_inputs([shop, other], lambda asked: answer if asked.password else "London-Paddington")
    transports = [each.expand({}, answers=answers).transport for each in (shop, other)]

    texts = recorded(path, f"{answer} of London-Paddington, {quote(answer, safe='')}", servers=transports)

    assert [text for text in texts if answer in text or quote(answer, safe="") in text] == []
    assert f"no {REDACTED} of London-Paddington, {REDACTED}." in texts


def test_passwords_in_urls_are_marked_in_any_text(path: Path) -> None:
    arguments = {"url": "postgres://me:QZX%21JVKWY@db/x", "also": "say https://a:b@c or http://localhost:80/@x"}
    recorded(path, "QZX!JVKWY", json=arguments)

    [entry] = read(path).entries
    assert entry["http"]["json"] == {
        "url": f"postgres://me:{REDACTED}@db/x",
        "also": f"say https://a:{REDACTED}@c or http://localhost:80/@x",
    }
    assert entry["response"]["text"] == f"no {REDACTED}."


def test_short_secrets_are_marked_in_their_own_place(path: Path) -> None:
    """In ordinary text, too many would be found."""
    recorded(path, "QZXJ", json={"pwd": "QZXJ", "passwords": ["QZ", ["XJ", ""], 12], "apiKey": {"name": "QZXJ"}})

    [entry] = read(path).entries
    marked = {"pwd": REDACTED, "passwords": [REDACTED, [REDACTED, ""], 12], "apiKey": {"name": "QZXJ"}}
    assert entry["http"]["json"] == marked
    assert entry["response"]["text"] == "no QZXJ."


def test_a_key_that_is_the_user_of_a_url_is_marked(path: Path) -> None:
    recorded(path, "sk-QZXJVKWY", "http://sk-QZXJVKWY:@localhost/")

    assert "QZXJVKWY" not in path.read_text()


def test_empty_parameters_of_a_url_are_kept() -> None:
    assert Redaction((), {}).url("https://api.example/?a=&b=1&token=QZXJ") == (
        f"https://api.example/?a=&b=1&token={REDACTED}"
    )


def test_attributes_of_cookies_and_of_signatures_are_no_secrets(path: Path) -> None:
    """The domain of a cookie is in URLs, and ``content-type`` is the name of a header that replaying needs."""
    headers = {
        "set-cookie": "a=QZXJVKWYB; Path=/; Domain=api.example; HttpOnly",
        "authorization": "AWS4-HMAC-SHA256 Credential=QZXJ0123, SignedHeaders=content-type;host, Signature=QZXJ4567",
    }
    recorded(
        path,
        "content-type of api.example; HttpOnly; QZXJVKWYB, QZXJ0123, QZXJ4567",
        "https://api.example/",
        headers=headers,
    )

    [entry] = read(path).entries
    assert entry["http"]["url"] == "https://api.example/"
    assert entry["response"]["text"] == f"no content-type of api.example; HttpOnly; {', '.join([REDACTED] * 3)}."


def test_the_difference_of_a_replay_shows_no_secret(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the recording, and not that of the replay: in the path of the URL, in its query and in the body."""

    def request(key: str, text: str) -> dict[str, Any]:
        body = {"text": text, "echo": key, "apiToken": f"other-{key}", "password": "QZXJ"}
        return {"url": f"http://localhost/bot{key}/?accessToken=query-{key}", "json": body}

    monkeypatch.setenv("BOTTOKEN", "QZXJVKWY-recorded")
    recorded(path, "QZXJVKWY-recorded", **request("QZXJVKWY-recorded", "Hi"))
    monkeypatch.setenv("BOTTOKEN", "QZXJVKWY-now")
    with (
        pytest.raises(CassetteError) as raised,
        Cassette(path) as cassette,
        httpx2.Client(transport=cassette.http_transport()) as client,
    ):
        client.post(**request("QZXJVKWY-now", "Hello"))

    assert f"POST http://localhost/bot{REDACTED}/?accessToken={REDACTED} is not in" in str(raised.value)
    assert '"text": "Hello"' in str(raised.value)
    assert "QZXJ" not in str(raised.value)


def test_what_all_keys_have_is_no_secret() -> None:
    """The first line of a key in a variable, and the other members of Google's credentials."""
    head = "-----BEGIN PRIVATE KEY-----"
    credentials = {"type": "service_account", "private_key": f"{head}\nQZXJVKWYB\n"}
    redaction = Redaction((), {"DEPLOY_KEY": f"{head}\nXJVKWYBQZ", "GOOGLE_CREDENTIALS": json.dumps(credentials)})

    assert redaction.text(f"{head} of a service_account") == f"{head} of a service_account"
    assert redaction.text("QZXJVKWYB XJVKWYBQZ") == f"{REDACTED} {REDACTED}"


@pytest.mark.parametrize(
    ("command", "text", "marked"),
    [
        (["python", "-c", "token = input()\nprint('Hello, world')"], "print('Hello, world')", "print('Hello, world')"),
        (["docker", "run", "--env=PASSWORD=QZXJ,VKWY123"], "QZXJ,VKWY123", REDACTED),
    ],
    ids=["code", "a variable"],
)
def test_a_variable_in_an_option_is_a_secret_as_a_whole_and_code_is_none(
    command: list[str], text: str, marked: str
) -> None:
    redaction = Redaction((), {})
    redaction.learn_command(command, {})

    assert redaction.text(text) == marked


def test_the_variable_pwd_is_a_folder() -> None:
    assert Redaction((), {"PWD": "/home/ada/work"}).text("in /home/ada/work") == "in /home/ada/work"


@pytest.mark.parametrize("word", ["password", "required", "created_at"])
def test_a_plain_word_is_marked_in_its_own_place_only(path: Path, word: str) -> None:
    """A schema has such names, and a tool may answer ``{"password": "required"}``."""
    schema = {"properties": {word: {"type": "string"}}, "required": [word]}
    recorded(path, word, servers=[Stdio(["any"], env={"DB_PASSWORD": word})], json={"client_secret": word, **schema})

    [entry] = [entry for entry in read(path).entries if "http" in entry]
    assert entry["http"]["json"] == {"client_secret": REDACTED, **schema}


def test_a_password_with_an_at_sign_is_marked_as_a_whole() -> None:
    url = "postgres://u:p@ssW0rd123@host/db"
    redaction = Redaction((), {"DATABASE_URL": url})

    assert redaction.text(f"{url} or p@ssW0rd123") == f"postgres://u:{REDACTED}@host/db or {REDACTED}"


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ('data: {"access_token":"QZXJ-VKWY"}\n', f'data: {{"access_token":"{REDACTED}"}}\n'),
        (': hi\ndata: {"access_token":"QZXJ-VKWY"}', f': hi\ndata: {{"access_token":"{REDACTED}"}}'),
        ('event: a\ndata: {"access_token":"QZXJ-VK', f'event: a\ndata: {{"access_token":"{REDACTED}'),
    ],
    ids=["without its end", "with a comment", "cut"],
)
def test_a_secret_in_an_event_that_is_kept_as_text_is_marked(body: str, marked: str) -> None:
    assert Redaction((), {}).json(body) == marked


def test_a_secret_is_found_in_json_of_a_text_of_json_and_in_lower_case_percent_encoding() -> None:
    redaction = Redaction((), {"API_KEY": 'QZ"\\XJ/VKWY'})
    twice = json.dumps({"a": json.dumps({"b": 'QZ"\\XJ/VKWY'})})

    assert redaction.text(twice) == json.dumps({"a": json.dumps({"b": REDACTED})})
    assert redaction.text("QZ%22%5cXJ%2fVKWY") == REDACTED


def test_a_long_variable_takes_linear_time() -> None:
    def learn(size: int) -> None:
        assert Redaction((), {"CERTIFICATE": "A" * size}).text("A=B") == "A=B"

    assert grows_linearly(learn, 2_000)


BASE64_OF = base64.b64encode(b"ada:QZXJ-0123").decode()
SECRET_TEXTS: dict[str, tuple[str, str]] = {
    "a header": ("curl -H 'Authorization: Bearer @' https://a/", "QZXJVKWY-a"),
    "a header without a scheme": ("authorization: @\nAccept: */*", "QZXJVKWY-a"),
    "a header in the text of JSON": ('{"a": "X-Api-Key: @\\nB: c"}', "QZXJVKWY0"),
    "a scheme alone": ("sent as Bearer @, refused", "QZXJVKWY.a~b"),
    "basic authorization": ("Authorization: Basic @", BASE64_OF),
    "a parameter of a URL": ("see https://a/b?n=1&access_token=@&m=2 for more", "QZXJ"),
    "a signature of a URL": ("[file](https://a/b?X-Amz-Signature=@)", "QZXJ"),
    "a user of a URL": ("git clone https://@@github.test/a", "QZXJVKWY0"),
    "a user without a password": ("https://@:@api.test/v1", "QZXJVKWY0"),
    "a dump of an environment": ("PATH=/bin\nexport GH_TOKEN=@\nHOME=/root", "short one"),
    "a quoted variable": ("DB_PASS='@'\n", "Hello World"),
    "a variable in a command": ("docker run -e OPENAI_KEY=@ image", "QZXJVKWY0"),
    "a line of YAML": ("user: ada\npassword: @\n", "QZXJVKWY0"),
    "nested YAML": ("secrets:\n  DB_PASSWORD: @\n", "QZXJVKWY0"),
    "a name after a label": ("Failed: api_token=@", "QZXJVKWY0"),
    "a fragment of a URL": ("https://a/#access_token=@&b=c", "QZXJ"),
    "a variable of PowerShell": ("$env:API_TOKEN = '@'", "QZXJVKWY0"),
    "a flow of YAML": ("config: {API_KEY: @}", "QZXJVKWY0"),
    "a connection string": ("Server=db;AccountKey=@;Encrypt=yes", "QZXJVKWY0=="),
    "a private key": ("-----BEGIN RSA PRIVATE KEY-----\n@\n-----END RSA PRIVATE KEY-----", "QZXJVKWYQZXJVKWY01\nQZ=="),
    "an encrypted key": (
        "-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n@\n-----END",
        "QZXJVKWYQZXJVKWY01\nQZ==",
    ),
    "a key in the text of JSON": (r'{"a": "-----BEGIN PRIVATE KEY-----\n@\n-----E"}', r"QZXJVKWYQZXJVKWY01\nQZ=="),
    **{
        f"a key: {key[:8]}": ("it is @, they say", key)
        for key in (
            *(
                "sk-ant-api03-QZXJVKWYQZXJVKWY0",
                "sk-proj-QZXJVKWY0QZXJVKWY",
                "AIzaSyQZXJVKWY0QZXJVKWY0QZXJVKWY0QZXJVKWY",
            ),
            *(
                "GOCSPX-QZXJVKWYQZXJVKWYQZXJ",
                "ya29.QZXJVKWYQZXJVKWYQZXJ",
                "hf_QZXJVKWYQZXJVKWYQZXJ",
                "gsk_QZXJVKWYQZXJVKWYQZXJ",
            ),
            *(
                "xai-QZXJVKWYQZXJVKWYQZXJ",
                "ghp_QZXJVKWYQZXJVKWYQZXJ",
                "github_pat_QZXJVKWYQZXJVKWYQZXJ",
                "glpat-QZXJVKWYQZXJVKWY",
            ),
            *(
                "xoxb-1234567890-QZXJ",
                "xapp-1-QZXJVKWYQZ",
                "AKIAIOSFODNN7EXAMPLE",
                "sk_live_QZXJVKWY01",
                "npm_QZXJVKWYQZXJVKWYQZXJVKWYQZXJVK",
            ),
            *("pypi-AgEIcHlwaS5vcmcQZXJVKWYQZXJVKWYQZXJ", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.QZXJ-_VKWY"),
            *("SG.QZXJVKWYQZXJVKWY.QZXJVKWYQZXJVKWY", "hvs.QZXJVKWYQZXJVKWYQZXJ", "whsec_QZXJVKWYQZXJVKWY"),
        )
    },
}


def test_a_secret_is_found_by_its_form_and_marked_elsewhere_too(subtests: pytest.Subtests) -> None:
    for case, (text, secret) in SECRET_TEXTS.items():
        with subtests.test(case):
            written = text.replace("@", secret, 1)
            redaction = Redaction((), {})

            marked = redaction.json([written, f"again {secret}", {"in": "pieces"}])
            assert isinstance(marked, list)
            assert secret not in str(marked[0])
            assert (marked[1] == f"again {REDACTED}") == (len(secret) >= 8)
            assert redaction.json(marked) == marked

            streamed = redaction.stream([{"text": written[:20]}, {"text": written[20:]}])
            assert secret not in "".join(str(piece["text"]) for piece in streamed if isinstance(piece, dict))


def test_the_password_of_basic_authorization_is_decoded(subtests: pytest.Subtests) -> None:
    for case, (credentials, echoed, marked) in {
        "a password": (b"ada:QZXJ-0123", "for ada: QZXJ-0123", f"for ada: {REDACTED}"),
        "a user without one": (b"QZXJ-0123:", "QZXJ-0123 is refused", f"{REDACTED} is refused"),
        "no text": (b"\xff\xfe:\xff", "QZXJ-0123", "QZXJ-0123"),
    }.items():
        with subtests.test(case):
            header = f"Basic {base64.b64encode(credentials).decode()}"
            sent, said = Redaction((), {}), Redaction((), {})
            sent.headers([("Authorization", header)])

            assert sent.text(echoed) == marked
            assert said.json([f"authorization: {header}", echoed]) == [f"authorization: {REDACTED}", marked]


OBJECTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "API_KEY", "value": "QZXJ"}, {"name": "API_KEY", "value": REDACTED}),
    ({"Name": "DB_PASS", "Value": "QZXJ"}, {"Name": "DB_PASS", "Value": REDACTED}),
    ({"key": "Authorization", "value": ["QZ"]}, {"key": "Authorization", "value": [REDACTED]}),
    ({"GH_TOKEN": "QZ", "DEPLOY_KEY": "XJ"}, {"GH_TOKEN": REDACTED, "DEPLOY_KEY": REDACTED}),
]
NO_SECRETS: list[Any] = [
    {"name": "primary_key", "value": "id"},
    {"name": 5, "value": "QZXJ"},
    {"value": "QZXJ", "KEY": "a column", "PWD": "/home/ada"},
    *("ssh://git@github.test/a", "max_tokens=1234567890", "f(token=get_token(), api_key=os.environ['X'])"),
    *("api_key: Optional[str]", "PWD=/home/ada", "Bearer authentication is required", "a task-sk-learn-something-long"),
    *("Authorization: required", "-----BEGIN PRIVATE KEY----- of a service_account", "https://a/?page=2&q=token"),
]


def test_a_value_with_a_secret_name_beside_it_is_marked_and_what_only_looks_like_one_is_not(
    subtests: pytest.Subtests,
) -> None:
    for value, marked in [*OBJECTS, *[(value, value) for value in NO_SECRETS]]:
        with subtests.test(value=value):
            assert Redaction((), {}).json(value) == marked


def test_forms_of_secrets_are_looked_for_in_linear_time(subtests: pytest.Subtests) -> None:
    redaction = Redaction((), {})
    key = "-----BEGIN PRIVATE KEY-----\n"
    names = ("A=B ", "A: ", "A:\\n", "A=", "PASSWORD=", "PASSWORD1=")
    parts = (*names, "eyJ", "://", "?a=", "sk-", "xoxb-", "Bearer ", "export ", " ", key, f"{key}A")
    for beginning, repeated in (*(("", part) for part in parts), (f"{key}{'A' * 16}", "\nA")):

        def mark(length: int, beginning: str = beginning, repeated: str = repeated) -> None:
            redaction.json([beginning + repeated * (length // len(repeated))])

        with subtests.test(beginning + repeated):
            assert grows_linearly(mark, 10_000)
