"""A web application whose users log in to an MCP server, each with tokens of their own, and finish only their own logins."""

from __future__ import annotations

import os
from secrets import token_urlsafe

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from mcp_host import Client, OAuth, StreamableHttp
from mcp_host.auth import AuthError, AuthorizationNeeded, Dynamic


class User:
    """What the application keeps for one session: the authorization, and the logins that wait for their redirect."""

    def __init__(self, redirect_uri: str) -> None:
        # With several processes: tokens=, a store that they share, and in it a place for each user.
        self.auth = OAuth(registration=Dynamic("My application"), redirect_uri=redirect_uri)
        self.logins: set[str] = set()


def make_app(url: str = os.environ.get("MCP_URL", ""), origin: str = os.environ.get("ORIGIN", "")) -> Starlette:
    users: dict[str, User] = {}  # by session; take yours from the framework

    async def tools(request: Request) -> Response:
        session = request.cookies.get("session", "")
        if session not in users:
            session = token_urlsafe()
            users[session] = User(f"{origin}/logged-in")
        user = users[session]
        try:
            async with Client(StreamableHttp(url, auth=user.auth)) as client:
                response = Response("\n".join([tool.name for tool in await client.list_tools()]))
        except AuthorizationNeeded as needed:
            user.logins.add(needed.state)
            response = RedirectResponse(needed.url, 303)
        except AuthError:  # log it; a user has begun too many logins, say
            response = Response("you cannot be logged in now: try again later", 502)
        response.set_cookie("session", session, httponly=True, samesite="lax", secure=origin.startswith("https:"))
        return response

    async def logged_in(request: Request) -> Response:
        user, state = users.get(request.cookies.get("session", "")), request.query_params.get("state", "")
        if user is None or state not in user.logins:  # someone has lured the user here, with a code of theirs
            return Response("this is no login of yours", 403)
        user.logins.discard(state)
        try:
            await user.auth.finish(state, str(request.url))
        except AuthError:  # log it: the text is not for users
            return Response("you are not logged in", 502)
        return RedirectResponse("/tools", 303)

    return Starlette(routes=[Route("/tools", tools), Route("/logged-in", logged_in)])
