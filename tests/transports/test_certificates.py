"""Certificates as arguments of `StreamableHttp`: over our own connections, and over those that a proxy would need."""

from __future__ import annotations

import datetime
import logging
import re
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha1
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from traceback import format_exception
from typing import Any

import anyio
import httpx
import pytest
import trustme
from anyio.abc import ByteStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mcp_host import Client, StreamableHttp
from mcp_host.errors import ConnectFailed
from mcp_host.transports._http.tls import explain, make_context, trusted
from tests.faults.http_server import SOON, mcp, tides
from tests.transports.http_contract import authority, by_httpx, callers_own, certified  # noqa: F401  # one is an autouse fixture
from tests.transports.http_peers import Wire, serving

HOST = "127.0.0.1"
NOWHERE = "https://127.0.0.1:1/mcp"
pytestmark = pytest.mark.backends("trio")  # TLS on either event loop is the subject of test_pool_tls
PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and a client's certificate with its key: in one file, in two, and encrypted.

    Also with what will not do: a certificate of another authority, another key, and garbage.
    """
    folder = tmp_path_factory.mktemp("certificates")
    authority().cert_pem.write_to_path(str(folder / "ca.pem"))
    mine = authority().issue_cert("client.test")
    mine.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    mine.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    mine.private_key_pem.write_to_path(str(folder / "client.key"))
    key = serialization.load_pem_private_key(mine.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    (folder / "locked.key").write_bytes(locked)
    authority().issue_cert("other.test").private_key_pem.write_to_path(str(folder / "other.key"))
    (folder / "garbage.pem").write_text("garbage")
    stranger = trustme.CA().issue_cert("client.test").private_key_and_cert_chain_pem
    stranger.write_to_path(str(folder / "stranger.pem"))
    return folder


@pytest.fixture(autouse=True)
def in_folder(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)


def requiring(*names: str) -> ssl.SSLContext:
    """The context of a server that requires a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*names).configure_cert(context)
    authority().configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@asynccontextmanager
async def shaking_hands(tls: ssl.SSLContext) -> AsyncIterator[str]:
    """The URL of a server that does no more. It runs in a thread: there OpenSSL sends its alerts, which anyio drops."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listener.accept()
                with tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as connection:
                    with suppress(ssl.SSLError):
                        connection.do_handshake()
                    connection.shutdown(socket.SHUT_WR)
                    while socket.socket.recv(connection, 4096):
                        pass

    with socket.create_server((HOST, 0)) as listener:
        thread = Thread(target=accept)
        thread.start()
        try:
            yield f"https://{HOST}:{listener.getsockname()[1]}/mcp"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


async def answers(url: str, **options: Any) -> None:
    """Make a call, with these options of the transport, which has to work, and soon."""
    with anyio.fail_after(SOON):
        async with Client(StreamableHttp(url, **options), era="legacy") as client:
            await tides(client)


async def refusal(url: str, **options: Any) -> ConnectFailed:
    """How connecting fails, and soon; its message begins with *url*."""
    with anyio.fail_after(SOON), pytest.raises(ConnectFailed, match=f"^{re.escape(url)}: ") as caught:
        await Client(StreamableHttp(url, **options)).connect()

    assert caught.value.may_have_run is False
    return caught.value


async def failure(tls: ssl.SSLContext, **options: Any) -> str:
    """How connecting fails."""
    async with shaking_hands(tls) as url:
        return str(await refusal(url, **options)).removeprefix(f"{url}: ")


# Who is trusted


@pytest.mark.parametrize("verify", ["ca.pem", Path("ca.pem"), False], ids=["a path as text", "a path", "anything"])
async def test_a_server_is_trusted_by_the_file_of_its_authority(verify: Any) -> None:
    async with serving(mcp(), tls=certified(HOST)) as peer:
        await answers(peer.url, verify=verify)


async def test_a_server_is_trusted_by_a_folder_of_authorities(tmp_path: Path) -> None:
    """OpenSSL looks there for the hash of the issuer's name: a SHA-1 of its DER in lower case, without the tag."""
    pem = authority().cert_pem.bytes()
    subject = x509.load_pem_x509_certificate(pem).subject
    lower = x509.Name([x509.NameAttribute(part.oid, str(part.value).lower()) for part in subject]).public_bytes()
    (tmp_path / f"{int.from_bytes(sha1(lower[2:]).digest()[:4], 'little'):08x}.0").write_bytes(pem)

    async with serving(mcp(), tls=certified(HOST)) as peer:
        await answers(peer.url, verify=tmp_path)


async def test_a_context_is_used_as_it_is() -> None:
    context = ssl.create_default_context(cafile="ca.pem")
    context.load_cert_chain("both.pem")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    async with serving(mcp(), tls=requiring(HOST)) as peer:
        await answers(peer.url, verify=context)

    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


async def test_a_warning_is_logged_where_any_server_is_trusted(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(mcp(), tls=certified("another.test")) as peer:
        await answers(peer.url, verify=False)

    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [f"{peer.url}: verify=False: any server is trusted that answers at this address"]


async def test_a_context_of_ours_has_tls_1_2_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    create = ssl.create_default_context

    def lenient(*given: Any, **options: Any) -> ssl.SSLContext:
        context = create(*given, **options)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        return context

    monkeypatch.setattr(ssl, "create_default_context", lenient)

    for verify in (True, False, "ca.pem", "."):
        context = make_context("the server", verify, ("both.pem", None, None))
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_the_certificates_of_the_process_get_no_certificate_of_one_client() -> None:
    mine = make_context("the server", True, ("both.pem", None, None))

    assert mine is not trusted()
    assert make_context("the server", True, None) is trusted()


# The certificate of the client


CERTIFICATES: list[Any] = [
    "both.pem",
    Path("both.pem"),
    ("client.pem", "client.key"),
    (Path("client.pem"), "client.key"),
    ("client.pem", "locked.key", PASSWORD),
    ("client.pem", "client.key", "a password that is not needed"),
]


async def test_a_server_may_require_a_certificate_of_the_client(subtests: pytest.Subtests) -> None:
    async with serving(mcp(), tls=requiring(HOST)) as peer:
        for cert in CERTIFICATES:
            with subtests.test(cert=cert):
                await answers(peer.url, verify="ca.pem", cert=cert)


async def test_a_renewed_certificate_is_read_with_the_next_connection(tmp_path: Path) -> None:
    certificate = tmp_path / "mine.pem"
    async with serving(mcp(), tls=requiring(HOST)) as peer:
        client = Client(StreamableHttp(peer.url, verify="ca.pem", cert=certificate), era="legacy")
        with anyio.fail_after(SOON):
            with pytest.raises(ConnectFailed, match="No such file or directory"):
                await client.connect()
            shutil.copy("both.pem", certificate)
            async with client:
                await tides(client)


# Failures


def expired() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    authority().issue_cert(HOST, not_before=past, not_after=past + datetime.timedelta(days=1)).configure_cert(context)
    return context


def without_tls_1_3(context: ssl.SSLContext) -> ssl.SSLContext:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


UNKNOWN_CA = (
    "the server does not accept the client's certificate (unknown_ca): pass another as StreamableHttp(cert=...)"
)
FAILURES: dict[str, tuple[Callable[[], ssl.SSLContext], dict[str, Any], str]] = {
    "another host": (
        lambda: certified("127.0.0.2"), {},
        "the server's certificate is for another host (IP address mismatch, certificate is not valid for '127.0.0.1'.):"
        " use the name in it, or pass an ssl.SSLContext without check_hostname as StreamableHttp(verify=...)",
    ),
    "an unknown authority": (
        lambda: certified(HOST), {"verify": ssl.create_default_context()},
        "the server's certificate is not trusted (unable to get local issuer certificate):"
        " pass its authority's file as StreamableHttp(verify=...)",
    ),
    "expired": (
        expired, {},
        "the server's certificate is not valid (certificate has expired):"
        " StreamableHttp(verify=...) takes an ssl.SSLContext with other rules",
    ),
    "none of the client": (
        lambda: requiring(HOST), {}, "the server requires a client certificate: pass it as StreamableHttp(cert=...)",
    ),
    "none of the client in TLS 1.2, whose alert has a wider meaning": (
        lambda: without_tls_1_3(requiring(HOST)), {},
        "the server ended the handshake of TLS: it may require a client certificate, passed as StreamableHttp(cert=...)",
    ),
    "a stranger's": (lambda: requiring(HOST), {"cert": "stranger.pem"}, UNKNOWN_CA),
    "a stranger's in TLS 1.2": (lambda: without_tls_1_3(requiring(HOST)), {"cert": "stranger.pem"}, UNKNOWN_CA),
}  # fmt: skip


async def test_a_failed_handshake_is_named_with_the_argument_that_helps(subtests: pytest.Subtests) -> None:
    for name, (tls, options, complaint) in FAILURES.items():
        with subtests.test(name):
            assert await failure(tls(), **{"verify": "ca.pem", **options}) == complaint


async def test_a_server_without_a_common_version_of_tls_is_named() -> None:
    context = ssl.create_default_context(cafile="ca.pem")
    context.minimum_version = ssl.TLSVersion.TLSv1_3

    assert await failure(without_tls_1_3(requiring(HOST)), verify=context) == (
        "no common version of TLS: an ssl.SSLContext as StreamableHttp(verify=...) may allow others than 1.2 and later"
    )


async def test_a_self_signed_certificate_is_named_and_can_be_trusted_itself(tmp_path: Path) -> None:
    pem, tls = self_signed(tmp_path)

    text = await failure(tls, verify="ca.pem")
    async with serving(mcp(), tls=tls) as peer:
        await answers(peer.url, verify=pem)

    assert text == (
        "the server's certificate is not trusted (self-signed certificate): pass its authority's file as StreamableHttp(verify=...)"
    )


@pytest.mark.fault("H01")
async def test_a_server_that_does_not_speak_tls_is_named() -> None:
    async def plain(wire: Wire) -> None:
        await wire.say(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        await wire.hung_up()

    async with serving(plain) as peer:
        url = peer.url.replace("http:", "https:")
        error = await refusal(url)

    assert str(error) == f"{url}: the server does not speak TLS: its URL may begin with http://"


ALERTS: dict[str | None, str | None] = {
    "TLSV1_ALERT_UNKNOWN_CA": UNKNOWN_CA,
    "TLS_ALERT_UNKNOWN_CA": UNKNOWN_CA,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": UNKNOWN_CA.replace("unknown_ca", "certificate_expired"),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server requires a client certificate: pass it as StreamableHttp(cert=...)",
    "TLSV1_ALERT_INTERNAL_ERROR": None,
    None: None,
}


@callers_own
def test_an_alert_is_named_whatever_the_version_of_openssl() -> None:
    def explained(reason: str | None) -> str | None:
        error = ssl.SSLError(1, "alert")
        error.reason = reason  # type: ignore[assignment]  # it may be None: OpenSSL has reasons that Python does not know
        return explain(error)

    assert {reason: explained(reason) for reason in ALERTS} == ALERTS


# Files that cannot be read


TO_TRUST = "the certificates to trust cannot be read from verify="
OF_CLIENT = "the client's certificate cannot be read from cert="
NOT_PEM = "no certificate with its key in PEM format, or the wrong password"
NEEDS_PASSWORD = "the key is encrypted, so write cert=(certificate, key, password)"
UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"verify": "missing.pem"}, f"{TO_TRUST}'missing.pem': No such file or directory"),
    ({"verify": "garbage.pem"}, f"{TO_TRUST}'garbage.pem': it has none in PEM format"),
    ({"cert": "missing.pem"}, f"{OF_CLIENT}'missing.pem': No such file or directory"),
    ({"cert": ("client.pem", "missing.key")}, f"{OF_CLIENT}'client.pem' and 'missing.key': No such file or directory"),
    ({"cert": "client.pem"}, f"{OF_CLIENT}'client.pem': {NOT_PEM}"),
    ({"cert": ("client.pem", "other.key")}, f"{OF_CLIENT}'client.pem' and 'other.key': the key is not the certificate's"),
    ({"cert": ("client.pem", "locked.key")}, f"{OF_CLIENT}'client.pem' and 'locked.key': {NEEDS_PASSWORD}"),
    ({"cert": ("client.pem", "locked.key", "hunter3")}, f"{OF_CLIENT}'client.pem' and 'locked.key': {NOT_PEM}"),
]  # fmt: skip


async def test_a_file_that_cannot_be_read_is_an_error_of_connecting(subtests: pytest.Subtests) -> None:
    for options, complaint in UNREADABLE:
        with subtests.test(**options):
            error = await refusal(NOWHERE, **options)

            assert str(error) == f"{NOWHERE}: {complaint}"
            assert "hunter" not in "".join(format_exception(error)) + repr(StreamableHttp(NOWHERE, **options))


async def test_certificates_of_the_environment_that_cannot_be_read_are_an_error_of_connecting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "missing.pem")
    trusted.cache_clear()

    assert str(await refusal(NOWHERE)) == (
        f"{NOWHERE}: the certificates to trust cannot be read: No such file or directory"
    )


# Arguments


SENSELESS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"verify": None}, TypeError, "^verify is True, False, the path of .*, not NoneType$"),
    ({"verify": b"ca.pem"}, TypeError, "^verify is .*, not bytes$"),
    ({"verify": ""}, ValueError, "^verify has a path that is empty"),
    ({"verify": "a\0b"}, ValueError, "^verify has a path that .* a NUL character$"),
    ({"verify": "-----BEGIN X"}, ValueError, "^verify takes the path of a file"),
    ({"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, ValueError, "^verify has the ssl.SSLContext of a server"),
    ({"cert": 5}, TypeError, "^cert is the path of a PEM file, .*, not int$"),
    ({"cert": ("a",)}, TypeError, "^cert is the path of a PEM file, .*, not tuple$"),
    ({"cert": ("a", "b", 5)}, TypeError, "^cert is the path of .*, not tuple$"),
    ({"cert": ("a", None)}, TypeError, "^cert is the path of .*, not NoneType$"),
    ({"cert": ("a", "b", "x" * 1025)}, ValueError, "^the password of cert is"),
    ({"cert": ("a", "b", "\ud800")}, ValueError, "^the password of cert is"),
    ({"cert": "-----BEGIN secret"}, ValueError, "^cert takes the path of a file"),
    (
        {"cert": "a", "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
        ValueError,
        "^verify has an ssl.SSLContext: load the certificate into it, with its load_cert_chain$",
    ),
]


@callers_own
def test_arguments_that_make_no_sense_are_refused_without_being_quoted(subtests: pytest.Subtests) -> None:
    for options, error, complaint in SENSELESS:
        with subtests.test(repr(options)):
            with pytest.raises(error, match=complaint) as caught:
                StreamableHttp("https://mcp.test/", **options)
            assert "secret" not in str(caught.value)


@callers_own
@pytest.mark.parametrize(
    ("argument", "value"), [("cert", "both.pem"), ("verify", "ca.pem"), ("verify", ssl.create_default_context())]
)
def test_certificates_are_for_https(argument: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{argument} is for https:// only"):
        StreamableHttp("http://mcp.test/", **{argument: value})


@callers_own
@pytest.mark.parametrize("options", [{"verify": False}, {"verify": "ca.pem"}, {"cert": "both.pem"}], ids=str)
async def test_a_client_brings_its_own_certificates(options: dict[str, Any]) -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(
            ValueError, match=r"^client= brings its own certificates: write .*AsyncClient\(verify=\.\.\."
        ):
            StreamableHttp("https://mcp.test/", client=client, **options)


# Through a proxy


async def tunnelling(wire: Wire) -> None:
    """A proxy: it connects to where the client says, and passes all bytes on."""
    place = (await wire.hear_until(b"\r\n\r\n")).split()[1].decode()
    host, _, port = place.rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as server:
        await wire.say(b"HTTP/1.1 200 OK\r\n\r\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on, wire.stream, server)
            await pass_on(server, wire.stream)


async def pass_on(source: ByteStream, target: ByteStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for data in source:
            await target.send(data)
        await target.send_eof()


async def test_certificates_are_used_behind_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with serving(mcp(), tls=requiring(HOST)) as peer, serving(tunnelling) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.removesuffix("/mcp"))
        await answers(peer.url, verify="ca.pem", cert=("client.pem", "locked.key", PASSWORD))
        complaint = r"the server's certificate is not trusted .* as StreamableHttp\(verify=\.\.\.\)$"
        with pytest.raises(ConnectFailed, match=complaint):
            await answers(peer.url)

    assert proxy.connections > 0


def self_signed(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A server's certificate that is its own authority: its file, and the context of its server."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "self")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "self.pem").write_bytes(pem)
    (folder / "both.pem").write_bytes(pem + secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return folder / "self.pem", context
