"""Redirects: the URL that an authorization server sends the person back to, with its answer in the query."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

from mcp_host.secret import Secret, SecretValues

MAX_FIELDS = 64  # of a query
NO_APPS = frozenset({"about", "blob", "data", "file", "ftp", "javascript", "mailto", "vbscript", "ws", "wss"})
"""Schemes that no native app can have registered as its own (RFC 8252, section 7.1)."""

Parameters: TypeAlias = Mapping[str, Sequence[str]]


def check_redirect_uri(uri: str) -> None:
    """Check a redirect URI of the application: of https, http, or a scheme of a native app.

    Raises:
        ValueError: No authorization server can redirect there. "MUST NOT include a fragment" (RFC 6749, section 3.1.2).
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    is_web = parts.scheme in ("http", "https")
    is_usable = parts.hostname is not None if is_web else parts.scheme not in ("", *NO_APPS)
    if not is_usable or not uri.isascii() or not uri.isprintable() or {" ", "#"} & set(uri):
        raise ValueError(
            "redirect_uri has to be a URL without a fragment, such as https://my-app.example/logged-in, "
            "or com.example.app:/logged-in for a native app"
        )


def read_redirect(url: str, state: str, *, max_fields: int | None = MAX_FIELDS) -> Parameters:
    """The parameters of *url*, which is the answer to the authorization request with *state*.

    Raises:
        ValueError: It is not. The text says what *url* is or has, and quotes nothing of it.
    """
    try:
        parameters = SecretValues(parse_qs(urlsplit(url).query, keep_blank_values=True, max_num_fields=max_fields))
    except ValueError:  # its text may have the code in it
        raise ValueError("is no URL") from None
    given, *more = map(Secret, parameters.get("state", [""]))
    if more:  # "parameters MUST NOT be included more than once" (RFC 6749, section 3.1)
        raise ValueError("has a parameter twice")
    if not hmac.compare_digest(_bytes(given), _bytes(state)):
        raise ValueError("has another state: it is no answer to this login")
    return parameters


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
