"""What the adapter and the command use of Anthropic's SDK, for requests to the local server in ``servers/anthropic.py``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from os import environ
from types import TracebackType
from typing import Any, Self

import httpx


class APIStatusError(Exception):
    """The API answered with an error: *body* is its JSON."""

    def __init__(self, response: httpx.Response, body: object) -> None:
        super().__init__(f"Error code: {response.status_code} - {body}")
        self.response = response
        self.status_code = response.status_code
        self.body = body


class BadRequestError(APIStatusError):
    pass


class AuthenticationError(APIStatusError):
    pass


class RateLimitError(APIStatusError):
    pass


class InternalServerError(APIStatusError):
    pass


ERRORS = {400: BadRequestError, 401: AuthenticationError, 429: RateLimitError}


class Stream:
    """The events of a *response*. Leaving it closes the response."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._events = self._read()

    async def _read(self) -> AsyncIterator[Any]:
        failure = None
        async for line in self.response.aiter_lines():  # to its end, or trio warns of generators that are left
            if failure is None and line.startswith("data:"):
                event = json.loads(line.removeprefix("data:"))
                if event["type"] == "error":
                    failure = APIStatusError(self.response, event)
                else:
                    yield event
        if failure is not None:
            raise failure

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._events

    async def close(self) -> None:
        await self.response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncAnthropic:
    def __init__(
        self, *, base_url: str | None = None, api_key: str | None = None, http_client: httpx.AsyncClient | None = None
    ) -> None:
        self.api_key = api_key or environ.get("ANTHROPIC_API_KEY")
        self.auth_token = environ.get("ANTHROPIC_AUTH_TOKEN")
        self.max_retries = 2
        self.messages = self
        self._url = f"{base_url or environ.get('ANTHROPIC_BASE_URL', 'http://localhost')}/v1/messages"
        self._http = http_client or httpx.AsyncClient(verify=False, trust_env=False)  # to load certificates takes long

    async def create(self, *, extra_body: dict[str, Any] | None = None, **body: Any) -> Any:
        headers = {"x-api-key": self.api_key or "", "anthropic-version": "2023-06-01"}
        request = self._http.build_request("POST", self._url, headers=headers, json={**body, **(extra_body or {})})
        is_stream = bool(body.get("stream"))
        response = await self._http.send(request, stream=is_stream)
        if response.status_code >= 400:
            await response.aread()
            raise ERRORS.get(response.status_code, InternalServerError)(response, response.json())
        return Stream(response) if is_stream else response.json()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._http.aclose()
