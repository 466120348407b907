"""What sends a request: our own pool where it does all that httpx would, else httpx or httpx2."""

from __future__ import annotations

import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from http.client import HTTPResponse
from http.cookiejar import Cookie, CookieJar
from ipaddress import ip_address, ip_network
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.request import Request, getproxies, proxy_bypass

import h11
import httpx
from anyio import CancelScope, connect_tcp, get_cancelled_exc_class, move_on_after
from anyio.abc import TaskGroup

from mcp_host.concurrency.backends import cancels_current_task
from mcp_host.concurrency.owners import WorkOwner, owned_by
from mcp_host.errors import ConnectFailed, ConnectionClosed, HttpStatusError, McpError, excerpt
from mcp_host.limits import Limits
from mcp_host.protocol.headers import may_hold_credential
from mcp_host.secret import Secret, SecretBytes
from mcp_host.transports._http.authorization import (
    Auth,
    AuthorizedBy,
    Authorizing,
    Pausing,
    ReadyAuth,
    library_of,
    send_authorized,
)
from mcp_host.transports._http.pool import (
    KEEPALIVE,
    MAX_IDLE,
    Connect,
    Pool,
    PoolResponse,
    PoolState,
    quotes_response,
    system_reason,
    text_of,
)
from mcp_host.transports._http.response import DRAIN_TIME, HttpResponse
from mcp_host.transports._http.tls import (
    ClientCertificate,
    Verify,
    explain,
    is_of_tls,
    make_context,
    rejects_client,
    untrusting,
)
from mcp_host.transports._http.url import SecretRequest, can_be_connected_to, display_url
from mcp_host.version import __version__

if TYPE_CHECKING:
    import httpx2

AnyClient: TypeAlias = "httpx.AsyncClient | httpx2.AsyncClient"
USER_AGENT = f"mcp-host/{__version__}"
RELEASE_TIME = 1.0  # seconds for closing a socket: the peer takes no part in it, so this is never reached
MAX_PIECES = 20_000  # more than h11 can hold decoded: after so many, a body waits for the network
MAX_COOKIES = 50  # RFC 6265, section 6.1: "At least 50 cookies per domain", and there is only one
MAX_COOKIE = 4096  # bytes with its attributes; the same section asks for as much
MAX_COOKIES_SIZE = 8 * 1024  # bytes of all of them: more in one header is refused by nginx and Apache
MAX_REDIRECTS = 5  # curl allows 50 and browsers 20; within one origin, even two are odd
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PROXY_AUTHENTICATION = 407
WRONG_PROXY = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is not the URL of a proxy (in a password, write %2F, %3F and %23 for /, ? and #)"

Headers: TypeAlias = Mapping[str, str]
OnSent: TypeAlias = Callable[[str, Iterable[tuple[str, str]]], None]
"""Gets the URL and the headers of a request."""
CheckLogin: TypeAlias = Callable[[Hashable], None]
"""Gets the `AuthorizationContext.login` of a request that is about to be sent with a token. What it raises keeps it from that."""

# h11's list of headers that it has checked, which it does not check again. The class has no public name.
_CheckedHeaders = type(h11.Request(method="GET", target="/", headers=[("host", "")]).headers)


class HttpLibrary:
    """httpx, or httpx2, which has the same names: what a backend uses of it, and how its errors become ours.

    httpx2 is never imported here: an application that has a client of it has done so.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        # All that it raises: the fourth for a cookie in the caller's client, the last on asyncio only.
        self.errors = (module.HTTPError, module.StreamError, module.InvalidURL, UnicodeEncodeError, ssl.SSLError)
        self.broken = (module.ReadError, module.WriteError, module.RemoteProtocolError)
        self.not_retried = (module.TimeoutException, module.UnsupportedProtocol)
        # In these cases not a byte of the request can have reached the server.
        self._never_sent = (
            module.ConnectError,
            module.ConnectTimeout,
            module.PoolTimeout,
            module.ProxyError,
            module.UnsupportedProtocol,
        )
        self.request_body: Callable[[bytes], httpx.AsyncByteStream]
        self.request_body = type("Body", (RequestBody, module.AsyncByteStream), {})
        self.pausing: Callable[[Auth, Authorizing], httpx.Auth]
        self.pausing = partial(type("Auth", (Pausing, module.Auth), {}), shorten=self._shorten)

    @staticmethod
    def of(client: object) -> tuple[HttpLibrary, httpx.AsyncClient]:
        """The library of *client*, and *client* itself: one of httpx2 has the interface of one of httpx.

        Raises:
            TypeError: It is another object.
        """
        for name in ("httpx", "httpx2"):
            module = sys.modules.get(name)
            if module is not None and isinstance(client, module.AsyncClient):
                return _library(module), client
        raise TypeError(f"client is an httpx.AsyncClient or an httpx2.AsyncClient, not {type(client).__name__}")

    def error(self, exc: Exception, name: str, proxy: str | None = None) -> ConnectionClosed:
        """The error of ours for one of `errors`. *proxy* is for messages, like *name*; None if it is not known."""
        text = explain(exc) or (
            "" if isinstance(exc, self.module.LocalProtocolError) else system_reason(exc) or text_of(exc)
        )
        message = f"{name}: {self._about_proxy(exc, proxy)}{text or type(exc).__name__}"
        if isinstance(exc, self._never_sent):
            return ConnectFailed(message, may_have_run=False)
        return ConnectionClosed(message)

    def _about_proxy(self, exc: Exception, proxy: str | None) -> str:
        if type(exc) is self.module.TransportError:  # of a request of a hook or an Auth
            return ""
        if proxy is None:
            return "the proxy of the client: " if isinstance(exc, self.module.ProxyError) else ""
        is_proxys = isinstance(exc, (self.module.ConnectError, self.module.ProxyError)) and not is_of_tls(exc)
        return f"the proxy {proxy}: " if is_proxys else f"over the proxy {proxy}: "

    async def _shorten(self, response: httpx.Response) -> None:
        """Keep only the beginning of a body."""
        if response.is_stream_consumed:
            return  # by a hook of the caller's client
        async with HttpxResponse(response, "", self) as whole:
            beginning = await whole.beginning()
        response.headers.pop("content-encoding", None)
        response.stream, response.is_closed = self.module.ByteStream(beginning), False

    def shown(self, exc: Exception) -> Exception | None:
        """*exc*, if it quotes neither a header of a request, as a LocalProtocolError does, nor a response: they may be secrets."""
        return None if isinstance(exc, self.module.LocalProtocolError) or quotes_response(exc) else exc


_library = cache(HttpLibrary)


class HttpBackend(ABC):
    """Sends requests to one URL, and never to another origin.

    *headers* are sent with every request, *name* is the URL for error messages. *auth* is used in the place of the user
    and password in the URL. If the server closes a kept-alive connection just as it is used again, that POST fails
    with `may_have_run=True`: nothing tells whether the server had read it. Only a *repeatable* request is sent twice.
    """

    knows_login = True
    """Whether `authorized_by` tells of each change of the credentials."""
    not_retried: tuple[type[Exception], ...] = (TimeoutError,)
    """Causes of a `ConnectFailed` after which trying again is pointless: a timeout has taken long enough."""

    def __init__(
        self, url: httpx.URL, headers: Headers, name: str, auth: ReadyAuth | None = None, uds: str | None = None
    ) -> None:
        self.name = name
        self.tasks: TaskGroup | None = None
        """Where the unread rest of responses is drained. None: it is closed instead."""
        self.drain_time = DRAIN_TIME
        """Seconds for that."""
        self._url = url.copy_with(userinfo=b"") if url.userinfo else url  # httpx would log it with the URL, at INFO
        self._text = Secret(self._url)
        self._server = self._text if uds is None else Secret(f"{self._text} at {uds}")
        self._headers = headers
        self._auth = auth
        self.on_sent: OnSent | None = None
        """Gets each request as it is sent: with what an Auth, a client and a cookie jar add to it."""
        self.owner = WorkOwner()
        """Of what an Auth does for requests, until they are all over."""
        self._login: Hashable = None
        """Whose the cookies are: of the last request with a token."""

    async def send(
        self,
        method: str,
        headers: Headers,
        content: bytes | None = None,
        *,
        repeatable: bool = False,
        redirects: bool = True,
        authorizing: Authorizing = nullcontext,
        check_login: CheckLogin = lambda _: None,
    ) -> HttpResponse:
        """Send a request and return its response, of any status, as soon as its headers have arrived.

        A *repeatable* request is sent again if a connection breaks before any of the response arrives.
        Redirects that keep the method (307, 308) are followed within the origin; without *redirects*, they are
        responses like any other. While an Auth gets the authorization, it is in *authorizing*.

        Raises:
            McpError: The Auth or *check_login* raised it, or code of the application awaited a task that was cancelled.
            ConnectFailed, ConnectionClosed: With the reason as the cause, unless that may show a secret.
            HttpStatusError: A redirect that is not followed.
        """
        url, text = self._url, self._text
        for _ in range(MAX_REDIRECTS + 1):
            sent = {**self._headers, **headers}
            try:
                if self._auth is None:
                    response = await self._send(method, url, sent, content, repeatable, authorizing)
                else:
                    as_auth = (self._auth, check_login, method, url, content, repeatable, authorizing)
                    send, owning = partial(self._send_as, *as_auth), partial(self._owning, authorizing)
                    response = await send_authorized(
                        self._auth, method, text, sent, send, owning, self._server, is_redirected=text != self._text
                    )
            except get_cancelled_exc_class() as exc:
                if cancels_current_task(exc):
                    raise
                raise McpError(f"{self.name}: an Auth, or the client, awaited a task that was cancelled") from exc
            response.drain_soon = self._drain_soon
            if response.status not in REDIRECTS or not redirects:
                return response
            async with response:
                url = self._redirected(url, response)
                text = Secret(url)
        raise HttpStatusError(response.status, f"{response.failure}: gave up after {MAX_REDIRECTS} redirects")

    async def _send_as(
        self,
        auth: ReadyAuth,
        check_login: CheckLogin,
        method: str,
        url: httpx.URL,
        content: bytes | None,
        repeatable: bool,
        authorizing: Authorizing,
        headers: Headers,
    ) -> HttpResponse:
        """Send a request with the *headers* of *auth*. Nothing of another login goes with a token."""
        login = auth.authorized_by(self._server).context.login
        if login is not None:
            check_login(login)
            if self._login not in (None, login):
                self._forget_cookies()
            self._login = login
        return await self._send(method, url, headers, content, repeatable, authorizing)

    def authorized_by(self) -> AuthorizedBy | None:
        """What requests are authorized by. None without an Auth that tells."""
        return None if self._auth is None else self._auth.authorized_by(self._server)

    def sends_credential(self, headers: Headers) -> bool:
        """Whether a request with *headers* has an Auth, or a header or URL that may hold a credential."""
        return self._auth is not None or bool(self._url.query) or may_hold_credential({**self._headers, **headers})

    @abstractmethod
    async def _send(
        self,
        method: str,
        url: httpx.URL,
        headers: Headers,
        content: bytes | None,
        repeatable: bool,
        authorizing: Authorizing,
    ) -> HttpResponse:
        """Send a request without following redirects."""

    @abstractmethod
    def _forget_cookies(self) -> None:
        """Forget the cookies of the server, which are of another login."""

    @abstractmethod
    async def aclose(self) -> None: ...

    @contextmanager
    def _owning(self, authorizing: Authorizing) -> Iterator[None]:
        with owned_by({self.owner}), authorizing():
            yield

    def _redirected(self, url: httpx.URL, response: HttpResponse) -> httpx.URL:
        location = response.header(b"location")
        if location is None:
            refused = "nowhere"
        else:
            try:
                location = Secret(location)  # it may repeat our query
                target, *others = map(url.join, location.split(", "))  # no URL has a blank
            except (httpx.InvalidURL, UnicodeEncodeError) as exc:
                raise ConnectionClosed(f"{self.name}: Invalid URL in location header: {excerpt(str(exc))}") from exc
            if others:
                refused = f"one of {', '.join(map(display_url, (target, *others)))}"
            elif response.status not in (307, 308):
                refused = f"{display_url(target)}, which would change the method"
            elif (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                refused = f"{display_url(target)}, another origin"
            else:
                return url.copy_with(raw_path=target.raw_path)  # without its user and password
        raise HttpStatusError(
            response.status, f"{response.failure}: refused to follow a redirect to {excerpt(refused)}"
        )

    def _drain_soon(self, response: HttpResponse) -> bool:
        if self.tasks is None:
            return False
        self.tasks.start_soon(response.drain, self.drain_time)
        return True


class HttpxBackend(HttpBackend):
    """A client of httpx or httpx2, used as it is: with its hooks, its authentication, its cookies.

    *auth* is used in the place of the client's authentication, which comes before the user in the URL. An *anonymous*
    backend sends neither that nor an Authorization header that the client adds. *proxy* is that of the client, for
    error messages.
    """

    def __init__(
        self,
        url: httpx.URL,
        headers: Headers,
        name: str,
        client: AnyClient,
        auth: Auth | None = None,
        *,
        anonymous: bool = False,
        proxy: str | None = None,
    ) -> None:
        if auth is None and not anonymous and isinstance(client.auth, ReadyAuth):
            auth = client.auth  # inside the client it could neither pause timeouts nor know of redirects
        super().__init__(url, headers, name, auth if isinstance(auth, ReadyAuth) else None)
        self._flow = auth if self._auth is None else None
        self.knows_login = self._flow is None
        self._anonymous = anonymous
        self._proxy = proxy
        self._library, self._client = HttpLibrary.of(client)
        self._basic = self._library.module.BasicAuth(url.username, url.password) if url.userinfo else None
        self.not_retried = self._library.not_retried
        # The caller of a request says how long it may take, so the client's read timeout does not apply.
        given = client.timeout
        self._timeout = self._library.module.Timeout(None, connect=given.connect, write=given.write, pool=given.pool)

    async def _send(
        self,
        method: str,
        url: httpx.URL,
        headers: Headers,
        content: bytes | None,
        repeatable: bool,
        authorizing: Authorizing,
    ) -> HttpResponse:
        if self._client.is_closed:
            raise ConnectionClosed(
                f"{self.name}: the {self._library.module.__name__}.AsyncClient was closed", may_have_run=False
            )
        auth: httpx.Auth | None = None
        if self._flow is not None:
            auth = self._library.pausing(self._flow, authorizing)
        elif self._auth is None:
            auth = (None if self._anonymous else self._client.auth) or self._basic
            auth = auth and self._library.pausing(auth, nullcontext)
        headers = dict({name.lower(): (name, value) for name, value in headers.items()}.values())  # see `checked`
        try:
            request = self._client.build_request(
                method, str(url), headers=headers, content=content, timeout=self._timeout
            )
            if self._anonymous and "authorization" not in map(str.lower, headers):
                request.headers.pop("authorization", None)
            if content is not None:
                request.stream = self._library.request_body(content)
            try:
                response = await self._send_twice(request, auth, repeatable)
            finally:
                self._report(request)  # in which an Auth or a hook has put its headers
            self._report(*(each.request for each in (*response.history, response)))  # if it has sent others
            refused_by_proxy = response.status_code == PROXY_AUTHENTICATION and self._proxy is not None
            name = f"the proxy {self._proxy} for {self.name}" if refused_by_proxy else self.name
            return HttpxResponse(response, name, self._library)
        except self._library.errors as exc:
            error = self._library.error(exc, self.name, self._proxy)
            if rejects_client(exc):
                error = ConnectFailed(str(error), may_have_run=False)
            raise error from self._library.shown(exc)

    def _report(self, *requests: httpx.Request) -> None:
        if self.on_sent is not None:
            for request in requests:
                self.on_sent(str(request.url), request.headers.multi_items())

    def sends_credential(self, headers: Headers) -> bool:
        auth = self._flow or self._client.auth or self._basic
        return auth is not None or super().sends_credential({**self._client.headers, **headers})

    async def _send_twice(self, request: httpx.Request, auth: httpx.Auth | None, repeatable: bool) -> httpx.Response:
        broken: Exception | None = None
        while True:
            try:
                return await self._client.send(request, stream=True, auth=auth, follow_redirects=False)
            except self._library.module.RequestError as exc:
                try:
                    ours = exc.request is request
                except RuntimeError:  # raised by other code than httpx, which has sent nothing
                    ours = False
                if not ours:  # a request of a hook or an Auth, before ours was sent or after it was carried out
                    raise self._library.module.TransportError(str(exc)) from exc
                if broken is not None:
                    raise broken from None  # the request may have been read, which the second error might deny
                if not repeatable or not isinstance(exc, self._library.broken):
                    raise
                broken = exc  # it does not tell whether the connection had been used before

    def _forget_cookies(self) -> None:
        if isinstance(self._client.cookies.jar, BoundedCookieJar):  # else they are the application's
            self._client.cookies.clear()

    async def aclose(self) -> None:
        await self._client.aclose()


class RequestBody:
    """The body of a request in one piece, for `HttpLibrary.request_body`.

    httpx's own body is a generator, which a cancelled request leaves to the garbage collector.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._begun = False

    def __aiter__(self) -> Self:
        self._begun = False
        return self

    async def __anext__(self) -> bytes:
        if self._begun:
            raise StopAsyncIteration
        self._begun = True
        return self._content


class HttpxResponse(HttpResponse):
    """A response of httpx or httpx2."""

    def __init__(self, response: httpx.Response, name: str, library: HttpLibrary) -> None:
        headers = [(key.lower(), value) for key, value in response.headers.raw]
        if response.is_stream_consumed:  # by a hook or an Auth of the client, which leaves it decompressed
            headers = [(key, value) for key, value in headers if key != b"content-encoding"]
            stream: httpx.AsyncByteStream = library.module.ByteStream(response.content)
        else:
            assert isinstance(response.stream, library.module.AsyncByteStream)  # every AsyncClient makes sure of it
            stream = response.stream  # not aiter_raw(): each generator around a stream is one more to unwind
        super().__init__(response.status_code, headers, name)
        self._library = library
        self._response = response
        self._pieces = aiter(stream)
        self._ended = False

    async def read_raw(self) -> bytes:
        piece = await self._pull()
        if not piece:
            await self._response.aclose()  # which releases the connection
            self.complete = True
        return piece

    async def close(self) -> None:
        """Discard the body.

        httpx and httpcore read through four nested async generators. Closing the
        outermost one leaves the others to the garbage collector, which asyncio
        answers with stray tasks and trio with warnings. A cancellation of the
        innermost await unwinds them all.
        """
        with CancelScope(shield=True) as scope:
            scope.cancel()
            for _ in range(MAX_PIECES):  # what is buffered comes without an await
                if self._ended:
                    break
                with suppress(ConnectionClosed):
                    await self._pull()
            if not self._ended and isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()  # a stand-in for a network, which never waits
        with move_on_after(RELEASE_TIME, shield=True):
            await self._response.aclose()
        self.complete = True

    async def _pull(self) -> bytes:
        self._ended = True  # any exception ends the generators
        try:
            piece = b""
            while not piece:
                piece = await anext(self._pieces)
        except StopAsyncIteration:
            return b""
        except get_cancelled_exc_class() as exc:
            if cancels_current_task(exc):
                raise
            raise ConnectionClosed(f"{self.name}: the client awaited a task that was cancelled") from exc
        except self._library.errors as exc:
            raise self._library.error(exc, self.name) from self._library.shown(exc)
        self._ended = False
        return piece


class PoolBackend(HttpBackend):
    """Our own pool, without httpx's client, which costs more than the request itself.

    It connects to one origin. Of what httpx's client does, it does what a server could
    notice: the user and password of the URL, and cookies, because load balancers pin
    a session to a machine by them. Its errors are those of `HttpxBackend`.
    """

    def __init__(
        self,
        url: httpx.URL,
        headers: Headers,
        name: str,
        limits: Limits,
        tls: ssl.SSLContext,
        uds: str | None = None,
        auth: ReadyAuth | None = None,
        connect: Connect = connect_tcp,
        state: PoolState | None = None,
    ) -> None:
        self._pool = Pool(
            url,
            name,
            tls,
            uds=uds,
            state=state,
            connect=connect,
            connect_timeout=limits.connect_timeout,
            write_timeout=limits.stall_timeout,
        )
        defaults = {"host": url.netloc.decode("ascii"), "user-agent": USER_AGENT}
        if url.userinfo and auth is None:
            basic = httpx.BasicAuth(url.username, url.password)
            [request] = basic.auth_flow(httpx.Request("GET", url))
            defaults["Authorization"] = Secret(request.headers["Authorization"])
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        given = {name.lower() for name in headers}
        defaults = {name: value for name, value in defaults.items() if name not in given}
        super().__init__(url, {**defaults, **headers}, name, auth, uds)
        self._check = self._pool.state.checked
        self._keeps_cookies = "cookie" not in given
        self._cookies: httpx.Cookies | None = None

    async def _send(
        self,
        method: str,
        url: httpx.URL,
        headers: Headers,
        content: bytes | None,
        repeatable: bool,
        authorizing: Authorizing,
    ) -> PoolResponse:
        if self._cookies is not None:
            request = SecretRequest("GET", url)
            self._cookies.set_cookie_header(request)
            if cookie := request.headers.get("cookie"):
                headers = {**headers, "cookie": Secret(cookie)}
        try:
            fields = dict(map(self._check, headers.items()))
            if content is not None:
                fields[b"content-length"] = (b"content-length", b"content-length", b"%d" % len(content))
            # As it is parsed: h11 would copy the target, whose repr hides the query.
            target, checked_headers = SecretBytes(url.raw_path), _CheckedHeaders([*fields.values()])
            sent = h11.Request(method=method.encode(), target=target, headers=checked_headers, _parsed=True)
        except (h11.LocalProtocolError, UnicodeEncodeError):  # its text quotes a header, which may be a secret
            raise ConnectionClosed(f"{self.name}: a header that cannot be sent", may_have_run=False) from None
        if self.on_sent is not None:
            self.on_sent(str(url), headers.items())
        repeatable, login = repeatable or method != "POST", self._login  # RFC 9110, section 9.2.2
        response = await self._pool.request(sent, content or b"", repeatable=repeatable)
        if self._keeps_cookies and response.header(b"set-cookie") is not None and login == self._login:
            self._cookies = self._cookies or httpx.Cookies(BoundedCookieJar())
            raw = response.head.headers.raw_items()
            self._cookies.extract_cookies(
                httpx.Response(response.status, headers=raw, request=httpx.Request(method, url))
            )
        return response

    def _forget_cookies(self) -> None:
        self._cookies = None

    async def aclose(self) -> None:
        await self._pool.aclose()


class BoundedCookieJar(CookieJar):
    """Drops the oldest cookies if there are too many, and takes none that is too large or that no header can carry."""

    def __init__(self) -> None:
        super().__init__()
        self._by_age: list[Cookie] = []

    def set_cookie(self, cookie: Cookie) -> None:
        text = f"{cookie.name}={cookie.value}"
        if text.isascii() and text.isprintable() and _size(cookie) <= MAX_COOKIE:
            super().set_cookie(cookie)

    def extract_cookies(self, response: HTTPResponse, request: Request) -> None:
        super().extract_cookies(response, request)
        current = set(self)  # without what was replaced, or has expired
        self._by_age = [cookie for cookie in dict.fromkeys([*self._by_age, *self]) if cookie in current]
        size = sum(map(_size, self._by_age))
        while len(self._by_age) > MAX_COOKIES or size > MAX_COOKIES_SIZE:
            oldest = self._by_age.pop(0)
            size -= _size(oldest)
            self.clear(oldest.domain, oldest.path, oldest.name)


def own_backend(
    url: httpx.URL,
    headers: Headers,
    name: str,
    limits: Limits,
    *,
    verify: Verify = True,
    cert: ClientCertificate | None = None,
    uds: str | None = None,
    auth: Auth | None = None,
    state: PoolState | None = None,
) -> HttpBackend:
    """The backend where the caller gave no client. Proxies of the environment apply, but not to a unix socket.

    *state* is what clients share where none of these and no client of httpx come between.

    An *auth* that is no `ReadyAuth` may send requests anywhere, which is what clients of its library are for.

    Raises:
        ConnectFailed: The files of *verify* or *cert* cannot be read, or the proxy of the environment cannot be used.
    """
    tls = make_context(name, verify, cert) if url.scheme == "https" else untrusting()
    if (uds is not None or not proxied(url)) and (auth is None or isinstance(auth, ReadyAuth)):
        return PoolBackend(url, headers, name, limits, tls, uds, auth, state=state)
    library = httpx if auth is None else library_of(auth)
    timeout = library.Timeout(None, connect=limits.connect_timeout, write=limits.stall_timeout)
    # Streams stay open for hours: a bound on connections could block endlessly.
    bounds = library.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEPALIVE)
    connect = partial(library.AsyncHTTPTransport, verify=tls, limits=bounds)
    try:
        proxy = None if uds is not None else environment_proxy(url)
        through = None if proxy is None else display_proxy(proxy)
        transport = connect(uds=uds) if uds is not None else ByEnvironment(connect)
    except (ImportError, ValueError, httpx.InvalidURL, library.InvalidURL) as exc:
        raise unusable_proxy(name, exc) from None
    client = library.AsyncClient(timeout=timeout, cookies=BoundedCookieJar(), transport=transport)
    return HttpxBackend(url, headers, name, client, auth, proxy=through)


class ByEnvironment:
    """A transport of httpx or httpx2 over the proxies of the environment. httpx fails over some NO_PROXY, and knows no networks."""

    def __init__(self, connect: Callable[..., Any]) -> None:
        self._direct: Any = connect()
        self._by_proxy = {proxy: connect(proxy=proxy) for proxy in environment_proxies().values()}

    async def handle_async_request(self, request: Any) -> Any:
        proxy = environment_proxy(httpx.URL(str(request.url)))
        transport = self._direct if proxy is None else self._by_proxy.get(proxy, self._direct)
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        for transport in (self._direct, *self._by_proxy.values()):
            await transport.aclose()


def proxied(url: httpx.URL) -> bool:
    """Whether the environment has a proxy for *url*."""
    return environment_proxy(url) is not None


def environment_proxies() -> dict[str, str]:
    """The proxies of the environment, by scheme; ``all`` is for the others."""
    proxies = getproxies()
    return {
        scheme: proxy if "://" in proxy else f"http://{proxy}"
        for scheme in ("http", "https", "all")
        if (proxy := proxies.get(scheme))
    }


def environment_proxy(url: httpx.URL) -> str | None:
    """The proxy of the environment for *url*, as urllib reads NO_PROXY, and with its networks."""
    proxies = environment_proxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(url.netloc.decode("ascii")) or in_excepted_network(url.host):
        return None
    return proxy


def display_proxy(proxy: str) -> str:
    """The origin of a proxy, for messages.

    Raises:
        ValueError, httpx.InvalidURL: Nothing can be connected to there.
    """
    url = httpx.URL(proxy)
    if not can_be_connected_to(url):
        raise ValueError("it has no host, or a port that does not exist")
    return excerpt(f"{url.scheme}://{url.netloc.decode('ascii')}")


def in_excepted_network(host: str) -> bool:
    """Whether *host* is an address in one of the networks of NO_PROXY, such as 10.0.0.0/8: curl reads these, too."""
    for network in getproxies().get("no", "").split(","):
        with suppress(ValueError):  # a name
            if ip_address(host) in ip_network(network.strip(), strict=False):
                return True
    return False


def unusable_proxy(name: str, exc: Exception) -> ConnectFailed:
    """The error for what an httpx client raises over the proxies of the environment; *name* is the server's."""
    why = exc if isinstance(exc, ImportError) else WRONG_PROXY
    return ConnectFailed(f"{name}: the proxy of the environment cannot be used: {why}", may_have_run=False)


def _size(cookie: Cookie) -> int:
    """The characters of its name, value and attributes, those of unknown attributes too."""
    return sum(len(str(part)) for part in vars(cookie).values() if part)
