"""Input asked for inside a result, and given on the retry: multi round-trip requests, since revision 2026-07-28."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from mcp_host.types.base import SINCE_2026_07_28
from mcp_host.types.elicitation import ElicitRequest, ElicitResult
from mcp_host.types.messages import RequestParams, Result
from mcp_host.types.roots import ListRootsRequest, ListRootsResult
from mcp_host.types.sampling import CreateMessageRequest, CreateMessageResult

InputRequest: TypeAlias = Annotated[
    CreateMessageRequest | ListRootsRequest | ElicitRequest, Field(discriminator="method")
]
InputResponse: TypeAlias = Annotated[
    CreateMessageResult | ListRootsResult | ElicitResult, Field(union_mode="left_to_right")
]
InputRequests: TypeAlias = dict[str, InputRequest]
InputResponses: TypeAlias = dict[str, InputResponse]


class InputRequiredResult(Result, since="2026-07-28"):
    """The server wants these answered, each under its name, before it will finish the request.

    *request_state* is opaque, and goes back unchanged with the answers.
    """

    result_type: Annotated[Literal["input_required"], SINCE_2026_07_28] = "input_required"
    input_requests: InputRequests | None = None
    request_state: str | None = None


class InputResponseRequestParams(RequestParams, since="2026-07-28"):
    """Params of a request that may be a retry: the answers, and the server's own state."""

    input_responses: Annotated[InputResponses | None, SINCE_2026_07_28] = None
    request_state: Annotated[str | None, SINCE_2026_07_28] = None
