"""Certificates: which servers are trusted, what the client presents, and what to do about failures."""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import NoReturn, TypeAlias

import httpx

from mcp_host.errors import ConnectFailed, excerpt

FilePath: TypeAlias = "str | os.PathLike[str]"
Verify: TypeAlias = "bool | FilePath | ssl.SSLContext"
Cert: TypeAlias = "FilePath | tuple[FilePath, FilePath] | tuple[FilePath, FilePath, str]"
ClientCertificate: TypeAlias = tuple[str, str | None, str | None]
"""The path of the certificate, that of its key if it is in another file, and the key's password."""

VERIFY_SHAPE = "verify is True, False, the path of a CA file or directory, or an ssl.SSLContext"
CERT_SHAPE = "cert is the path of a PEM file, (certificate, key) or (certificate, key, password)"
VERIFY, CERT = "StreamableHttp(verify=...)", "StreamableHttp(cert=...)"
HTTP_1_1 = "http/1.1"  # its name in ALPN
MAX_PASSWORD = 1024  # bytes; `ssl` takes no more

# Codes of X509_verify_cert(3).
_UNTRUSTED = frozenset({18, 19, 20, 21})  # self-signed, or no certificate of the issuer
_WRONG_HOST = frozenset({62, 64})  # a name, an address

# RFC 8446, section 6.2: the alerts of a server that does not accept the client's certificate.
_REJECTED = frozenset(
    {
        "ACCESS_DENIED",
        "BAD_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_UNKNOWN",
        "UNKNOWN_CA",
        "UNSUPPORTED_CERTIFICATE",
    }
)
_REQUIRED = "CERTIFICATE_REQUIRED"
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


def check_path(name: str, path: object, shape: str) -> str:
    """The *path* of the argument *name* as text. No error quotes it: it may be the text of a key.

    Raises:
        TypeError: It is not a path; *shape* says what to pass.
        ValueError: No file can have it.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"{shape}, not {type(path).__name__}")
    if "-----BEGIN " in text:
        raise ValueError(f"{name} takes the path of a file, not what is in it")
    if not text or "\0" in text:
        raise ValueError(f"{name} has a path that is empty or has a NUL character")
    return text


def check_verify(verify: object) -> None:
    """Check the argument *verify*. Raises as `check_path` does."""
    if isinstance(verify, ssl.SSLContext):
        if verify.protocol is ssl.PROTOCOL_TLS_SERVER:
            raise ValueError("verify has the ssl.SSLContext of a server; ssl.create_default_context() makes a client's")
    elif not isinstance(verify, bool):
        check_path("verify", verify, VERIFY_SHAPE)


def check_cert(cert: object) -> ClientCertificate:
    """The argument *cert*. Raises as `check_path` does."""
    match cert:
        case (certificate, key):
            return check_path("cert", certificate, CERT_SHAPE), check_path("cert", key, CERT_SHAPE), None
        case (certificate, key, str(password)):
            if not password.isprintable() or len(password.encode()) > MAX_PASSWORD:
                raise ValueError(f"the password of cert is not printable, or longer than {MAX_PASSWORD} bytes")
            return check_path("cert", certificate, CERT_SHAPE), check_path("cert", key, CERT_SHAPE), password
    return check_path("cert", cert, CERT_SHAPE), None, None


def make_context(name: str, verify: Verify, cert: ClientCertificate | None) -> ssl.SSLContext:
    """The context for connections to the server *name*. A caller's own is used as it is.

    Raises:
        ConnectFailed: A file cannot be read.
    """
    if isinstance(verify, ssl.SSLContext):
        return verify
    try:
        context = trusted() if verify is True and cert is None else _context(verify)
    except OSError as exc:
        where = "" if isinstance(verify, bool) else f" from verify={excerpt(os.fspath(verify))!r}"
        why = "it has none in PEM format" if isinstance(exc, ssl.SSLError) else exc.strerror or exc
        text = f"{name}: the certificates to trust cannot be read{where}: {why}"
        raise ConnectFailed(text, may_have_run=False) from exc
    if cert is not None:
        certificate, key, password = cert
        try:
            context.load_cert_chain(certificate, key, _no_password if password is None else password)
        except (OSError, ValueError) as exc:
            where = " and ".join(repr(excerpt(path)) for path in (certificate, key) if path is not None)
            text = f"{name}: the client's certificate cannot be read from cert={where}: {_unreadable(exc)}"
            raise ConnectFailed(text, may_have_run=False) from exc
    return context


def _context(verify: bool | FilePath) -> ssl.SSLContext:
    if verify is True:
        context = httpx.create_ssl_context()
    elif verify is False:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif os.path.isdir(verify):
        context = ssl.create_default_context(capath=verify)
    else:
        context = ssl.create_default_context(cafile=verify)
    # OpenSSL's own default depends on the machine; one that requires more is respected.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    context.set_alpn_protocols([HTTP_1_1])  # as httpx does
    return context


@cache
def trusted() -> ssl.SSLContext:
    """One context for the process: reading the certificates takes 12 ms or more."""
    return _context(verify=True)


@cache
def untrusting() -> ssl.SSLContext:
    """For http:// alone. It trusts no certificate."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _no_password() -> NoReturn:
    """Called for an encrypted key: without a callback, OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted, so write cert=(certificate, key, password)")


def _unreadable(exc: OSError | ValueError) -> object:
    match exc:
        case ssl.SSLError(reason="KEY_VALUES_MISMATCH"):
            return "the key is not the certificate's"
        case ssl.SSLError():
            return "no certificate with its key in PEM format, or the wrong password"
        case OSError():
            return exc.strerror or exc
    return exc


def explain(exc: BaseException, verify: str = VERIFY, cert: str = CERT) -> str | None:
    """Why TLS failed, and which argument helps: *verify* or *cert*. None if *exc* was not caused by an `ssl.SSLError`."""
    error = _ssl_error(exc)
    match error:
        case None:
            return None
        case ssl.SSLCertVerificationError():
            why = excerpt(getattr(error, "verify_message", "") or str(error))
            code = getattr(error, "verify_code", None)
            if code in _UNTRUSTED:
                return f"the server's certificate is not trusted ({why}): pass its authority's file as {verify}"
            if code in _WRONG_HOST:
                return (
                    f"the server's certificate is for another host ({why}): use the name in it,"
                    f" or pass an ssl.SSLContext without check_hostname as {verify}"
                )
            return f"the server's certificate is not valid ({why}): {verify} takes an ssl.SSLContext with other rules"
    alert = _alert(error)
    if alert == _REQUIRED:
        return f"the server requires a client certificate: pass it as {cert}"
    if alert in _REJECTED:
        return f"the server does not accept the client's certificate ({alert.lower()}): pass another as {cert}"
    if alert == "HANDSHAKE_FAILURE":  # how TLS 1.2 requires a certificate, among others
        return f"the server ended the handshake of TLS: it may require a client certificate, passed as {cert}"
    if alert == "PROTOCOL_VERSION" or error.reason == "UNSUPPORTED_PROTOCOL":
        return f"no common version of TLS: an ssl.SSLContext as {verify} may allow others than 1.2 and later"
    if error.reason in _NOT_TLS:
        return "the server does not speak TLS: its URL may begin with http://"
    return None


def check_protocol(chosen: str | None, name: str) -> None:
    """Check the protocol that the server *name* has *chosen* of those that the client offers; None if it offers none.

    Raises:
        ConnectFailed: It is not HTTP/1.1, which is all that our contexts offer.
    """
    if chosen not in (None, HTTP_1_1):
        text = f"the server chose {chosen}, which the ssl.SSLContext of {VERIFY} offers: only {HTTP_1_1} will do"
        raise ConnectFailed(f"{name}: {text}", may_have_run=False)


def rejects_client(exc: BaseException) -> bool:
    """Whether the server has ended the handshake over the client's certificate.

    In TLS 1.3 it does so after the client has finished its part and may have sent a request, which is not read then.
    """
    error = _ssl_error(exc)
    return error is not None and _alert(error) in {_REQUIRED, *_REJECTED}


def is_of_tls(exc: BaseException) -> bool:
    """Whether *exc* was caused by an `ssl.SSLError`."""
    return _ssl_error(exc) is not None


def _alert(error: ssl.SSLError) -> str:
    """The name of the alert that the server has sent. OpenSSL's prefix depends on its version."""
    return (error.reason or "").partition("_ALERT_")[2]


def _ssl_error(exc: BaseException | None) -> ssl.SSLError | None:
    """The `ssl.SSLError` that is *exc* or has caused it. httpcore raises errors of its pool `from None`."""
    while exc is not None and not isinstance(exc, ssl.SSLError):
        exc = exc.__cause__ or exc.__context__
    return exc
