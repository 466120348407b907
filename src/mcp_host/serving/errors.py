"""The exceptions of answering requests: what a function of a server raises, and what a client's refusal raises in it."""

from __future__ import annotations

from typing import NoReturn, Self, TypeVar

from mcp_host.errors import EndsLoop, McpError, ProtocolError, excerpt
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED, Params
from mcp_host.types import ElicitRequestURLParams
from mcp_host.types.base import Model

ModelT = TypeVar("ModelT", bound=Model)


class RequestError(EndsLoop):
    """Raise this in any function: the request is answered with this JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def url_required(cls, message: str, *elicitations: ElicitRequestURLParams) -> Self:
        """The error -32042: the user has to visit these URLs first (revision 2025-11-25)."""
        return cls(URL_ELICITATION_REQUIRED, message, {"elicitations": [wanted.to_wire() for wanted in elicitations]})


class ClientError(McpError):
    """The client answered with an error: *code*, *message* and *data* are the JSON-RPC error's."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        super().__init__(f"the client refused {method}: {excerpt(message)} ({code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data


async def refuse(method: str, params: Params) -> NoReturn:
    """Stands for sending the client a request when it cannot be asked.

    Raises:
        ClientError: Always.
    """
    raise ClientError(method, METHOD_NOT_FOUND, "the client cannot be asked now")


def read(model: type[ModelT], params: Params) -> ModelT:
    """Parse the client's params.

    Raises:
        RequestError: They are malformed.
    """
    try:
        return model.from_wire(params)
    except ProtocolError as exc:
        raise RequestError(INVALID_PARAMS, str(exc)) from None
