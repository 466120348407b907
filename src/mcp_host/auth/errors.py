"""What goes wrong when a client gets its authorization.

    AuthError
    ├── AddressRefused              a URL that came from the network leads where it must not
    ├── DiscoveryFailed             the authorization server, or what it offers, is not found
    ├── RegistrationFailed          there is no client id for the authorization server
    ├── LoginFailed                 the person, or the authorization server, did not authorize the client
    ├── TokenRequestFailed          the token endpoint gave no token
    ├── TokensError                 the store of tokens cannot be read or written
    └── AuthorizationNeeded         a person has to visit a URL first

No text has a token, a code, a secret or an assertion in it.
"""

from __future__ import annotations

from mcp_host.errors import AuthError as AuthError  # defined there for modules that do not import OAuth


class AddressRefused(AuthError):
    """A URL that came from the network leads to an address, or by a scheme, that it must not.

    See "Server-Side Request Forgery" in the security best practices of the specification.
    """


class DiscoveryFailed(AuthError):
    """The authorization server of an MCP server is not found, or its metadata must not be used."""


class RegistrationFailed(AuthError):
    """There is no client id for the authorization server."""


class LoginFailed(AuthError):
    """The authorization request has failed.

    The person has refused, nothing came back in time, or what came back is not the answer to it.

    *code* is the error code of the authorization response (RFC 6749, section 4.1.2.1), such as ``access_denied``,
    or of the device flow (RFC 8628, section 3.5). It is ``access_denied``, too, if the person has given the login up
    here, or a login function has raised this error. None if there is none, or one that is not repeated: see
    `TokenRequestFailed`.

    *scopes* are those that a request needs and the present login does not have. Their texts come from the server.
    """

    needs_login = True
    scopes: tuple[str, ...] = ()

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class TokenRequestFailed(AuthError):
    """The token endpoint gave no token.

    *code* is its error code (RFC 6749, section 5.2), such as ``invalid_grant``. None if there is none, or one that
    is not of words of lower-case letters, joined by underscores: that is not repeated, since it may be any text.

    *refused* says whether the server has understood and refused, or gave a token that cannot be used; otherwise the
    same request may succeed later.
    """

    def __init__(self, message: str, code: str | None = None, *, refused: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.refused = refused


class TokensError(AuthError):
    """The store of tokens cannot be read or written."""


class AuthorizationNeeded(AuthError):
    """A person has to visit *url*. What comes back is for `OAuth.finish`, with *state*.

    *url* is for that person only, and is not in the text.
    """

    needs_login = True

    def __init__(self, message: str, url: str, state: str) -> None:
        super().__init__(message)
        self.url = url
        self.state = state
