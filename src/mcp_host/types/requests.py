"""What a client asks a server: listing, reading, calling, subscribing."""

from typing import Literal

from mcp_host.types.base import JSONObject
from mcp_host.types.envelopes import PaginatedRequest
from mcp_host.types.inputs import InputResponseRequestParams
from mcp_host.types.messages import RequestParams, TaskAugmentedRequestParams, TypedRequest


class ListToolsRequest(PaginatedRequest):
    """Which tools are there?"""

    method: Literal["tools/list"] = "tools/list"


class ListPromptsRequest(PaginatedRequest):
    """Which prompts are there?"""

    method: Literal["prompts/list"] = "prompts/list"


class ListResourcesRequest(PaginatedRequest):
    """Which resources are there?"""

    method: Literal["resources/list"] = "resources/list"


class ListResourceTemplatesRequest(PaginatedRequest):
    """Which resource templates are there?"""

    method: Literal["resources/templates/list"] = "resources/templates/list"


class CallToolRequestParams(TaskAugmentedRequestParams, InputResponseRequestParams):
    """A tool's name and its arguments."""

    name: str
    arguments: JSONObject | None = None


class CallToolRequest(TypedRequest):
    """Run a tool."""

    method: Literal["tools/call"] = "tools/call"
    params: CallToolRequestParams


class GetPromptRequestParams(InputResponseRequestParams):
    """A prompt's name, and what to put into its blanks."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptRequest(TypedRequest):
    """Fill in a prompt."""

    method: Literal["prompts/get"] = "prompts/get"
    params: GetPromptRequestParams


class ResourceRequestParams(RequestParams):
    """Names a resource."""

    uri: str


class ReadResourceRequestParams(ResourceRequestParams, InputResponseRequestParams):
    """The resource to read."""


class ReadResourceRequest(TypedRequest):
    """Read a resource."""

    method: Literal["resources/read"] = "resources/read"
    params: ReadResourceRequestParams


class SubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The resource to hear of."""


class SubscribeRequest(TypedRequest, until="2025-11-25"):
    """Tell me when this resource changes."""

    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The resource to hear no more of."""


class UnsubscribeRequest(TypedRequest, until="2025-11-25"):
    """Tell me no more of this resource."""

    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams
