"""What a function of a test server can do with the client that called it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyio.lowlevel import checkpoint
from pydantic import BaseModel, ValidationError

from mcp_host import types
from mcp_host.errors import NotDeclared, ProtocolError
from mcp_host.functions import Injected, PlainSchema, ToolError
from mcp_host.protocol.jsonrpc import Id, Params
from mcp_host.sampling.structured import ServerSampling
from mcp_host.serving.remote_client import SEVERITY, ReceivedRequest, meta_of
from mcp_host.serving.service import Ask
from mcp_host.types.base import given


class Context(ServerSampling, Injected):
    """The client that made the call, for the function that answers it.

    A function gets one by annotating a parameter with this class. If the client did not
    declare a capability, using it raises `NotDeclared`; if it answers with an error, that
    raises `ClientError`. A tool that does not catch them ends with an error result.
    `request` and `notify` send anything.
    """

    def __init__(self, call: ReceivedRequest, ask: Ask) -> None:
        sampling = call.client.capabilities.sampling  # without it, `_ask_model` raises
        super().__init__(self._ask_model, with_tools=sampling is None or sampling.tools is not None)
        self._call = call
        self._request = ask

    @property
    def request_id(self) -> Id:
        """The id of the client's request. In revision 2026-07-28, after an answer: the id of the retry."""
        return self._call.request.id

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's ``_meta``; empty if it had none."""
        return meta_of(self._call.request.params)

    @property
    def client_info(self) -> types.Implementation:
        """The client's name and version; both are empty if it does not send them (since 2026-07-28)."""
        return self._call.client.info

    @property
    def client_capabilities(self) -> types.ClientCapabilities:
        """The capabilities that the client declared."""
        return self._call.client.capabilities

    @property
    def protocol_version(self) -> str:
        """The negotiated revision."""
        return self._call.client.version

    # Sampling

    async def _ask_model(self, wire: Params) -> Params:
        """Send a sampling request, written for the client's revision.

        Raises:
            NotDeclared: The client has no model, takes no tools, or takes no ``includeContext``.
            ClientError: It refused, or its model failed.
        """
        self._require("sampling")
        params = types.CreateMessageRequestParams.from_wire(wire)
        if params.include_context not in (None, "none") and self._call.client.declares_context:
            self._require("sampling", "context")
        return await self.request("sampling/createMessage", self._call.client.write(params))

    # Elicitation and roots

    async def elicit(self, message: str, schema: types.JSONObject | type[BaseModel]) -> types.ElicitResult:
        """Ask the user to fill in a form, given as a JSON Schema or as a pydantic model of flat, simple fields.

        Raises:
            NotDeclared: The client shows no forms.
            ToolError: A model was given, and the user's input does not fit it.
            ValueError: The model has a field that forms do not support.
        """
        elicitation = self.client_capabilities.elicitation
        if elicitation is None or (elicitation.form is None and elicitation.url is not None):
            raise NotDeclared("elicitation", "form")
        form = schema if isinstance(schema, dict) else _form(schema)
        result = await self._elicit(types.ElicitRequestFormParams(mode="form", message=message, requested_schema=form))
        if not isinstance(schema, dict) and result.action == "accept":
            try:
                schema.model_validate(result.content or {})
            except ValidationError as exc:
                raise ToolError(f"the user's input does not fit {schema.__name__}") from exc
        return result

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> types.ElicitResult:
        """Ask the user to visit *url*. Call `elicit_complete` when they are done there.

        Since revision 2026-07-28 elicitations have no id, and *elicitation_id* is not sent.

        Raises:
            NotDeclared: The client opens no URLs.
        """
        self._require("elicitation", "url")
        id = given(elicitation_id=None if self._call.client.stateless else elicitation_id)
        return await self._elicit(types.ElicitRequestURLParams(message=message, url=url, **id))

    async def elicit_complete(self, elicitation_id: str) -> None:
        """Tell the client that the user is done at the URL. Does nothing since 2026-07-28."""
        if not self._call.client.stateless:
            await self.notify("notifications/elicitation/complete", {"elicitationId": elicitation_id})

    async def list_roots(self) -> list[types.Root]:
        """The folders that the server may work in.

        Raises:
            NotDeclared: The client has no roots.
        """
        self._require("roots")
        return types.ListRootsResult.from_wire(await self.request("roots/list", {})).roots

    # Notifications

    async def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of the call. Does nothing if the client did not ask for progress."""
        if (token := self.meta.get("progressToken")) is None:
            return
        optional = given(total=total, message=message)
        params = types.ProgressNotificationParams(progress_token=token, progress=done, **optional)
        await self.notify("notifications/progress", self._call.client.write(params))

    async def log(self, level: types.LoggingLevel, data: object, *, logger: str | None = None) -> None:
        """Send a log message, unless it is less severe than the level that the client has set."""
        if SEVERITY[level] < self._call.client.min_severity:
            return
        params = types.LoggingMessageNotificationParams(level=level, data=data, **given(logger=logger))
        await self.notify("notifications/message", params.to_wire())

    # Anything else

    async def request(self, method: str, params: Params) -> Params:
        """Send any request, spelled as on the wire, and return its raw result. Nothing is checked.

        Since revision 2026-07-28 the request travels in a result. The function is suspended here
        until the client retries with the answer, for up to the server's *resume_timeout*.

        Raises:
            ClientError: The client answered with an error (which it cannot since 2026-07-28).
        """
        return await self._request(method, params)

    async def notify(self, method: str, params: Params) -> None:
        """Send any notification, spelled as on the wire. Nothing is checked.

        Since revision 2026-07-28 it is lost while the function is suspended.
        """
        self._call.notify(method, params)
        await checkpoint()  # a function that only reports lets other tasks run, too

    def _require(self, *capability: str) -> None:
        """Raise `NotDeclared` unless the client has declared this."""
        declared: object = self.client_capabilities
        for name in capability:
            declared = getattr(declared, name, None)
        if declared is None:
            raise NotDeclared(*capability)

    async def _elicit(self, params: types.ElicitRequestFormParams | types.ElicitRequestURLParams) -> types.ElicitResult:
        return types.ElicitResult.from_wire(await self.request("elicitation/create", self._call.client.write(params)))


def _form(model: type[BaseModel]) -> types.JSONObject:
    schema = model.model_json_schema(schema_generator=PlainSchema)
    schema.pop("description", None)  # "requestedSchema" has none
    try:
        types.ElicitationForm.from_wire(schema)
    except ProtocolError as exc:
        raise ValueError(f"{model.__name__} is no form: {exc}") from None
    return schema
