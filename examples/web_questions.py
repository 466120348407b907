"""The questions to the users of the web application: each sees and answers only their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from secrets import token_urlsafe
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from mcp_host import Allow, Deny, SamplingRequest


class Questions:
    """The open questions. No answer within *seconds* means no."""

    def __init__(self, seconds: float) -> None:
        self.routes = [Route("/questions", self._show), Route("/answer", self._answer, methods=["POST"])]
        self._seconds = seconds
        self._open: dict[str, tuple[object, str, asyncio.Future[bool]]] = {}  # the user, the text, the answer
        self._changed = WeakValueDictionary[object, asyncio.Event]()  # by user: only while a page waits for it

    async def approve(self, request: SamplingRequest) -> Allow | Deny:
        """Ask the user whose call it is. If the call ends first, this is cancelled."""
        if request.outer is None:
            return Deny("it is not known which user this is for")
        id, user, answer = token_urlsafe(), request.outer.caller, asyncio.get_running_loop().create_future()
        self._open[id] = (user, f"{request.server} asks the model: {request.messages[-1].text}", answer)
        self._changed.pop(user, asyncio.Event()).set()
        try:
            return Allow() if await asyncio.wait_for(answer, self._seconds) else Deny()
        except TimeoutError:
            return Deny("the user has not answered")
        finally:
            del self._open[id]
            self._changed.pop(user, asyncio.Event()).set()

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        user, _, answer = self._open.get(body["id"], (None, "", None))
        if answer is None or answer.done() or user != body["user"]:
            return Response(status_code=404)
        answer.set_result(body["allow"] is True)
        return Response(status_code=204)

    async def _show(self, request: Request) -> Response:
        return StreamingResponse(self._events(request.query_params["user"]), media_type="text/event-stream")

    async def _events(self, user: str) -> AsyncIterator[str]:
        """The user's open questions as Server-Sent Events: all of them at once, and after each change."""
        while True:
            changed = self._changed.setdefault(user, asyncio.Event())
            questions = [{"id": id, "text": text} for id, (whose, text, _) in self._open.items() if whose == user]
            yield f"data: {json.dumps(questions)}\n\n"
            await changed.wait()
