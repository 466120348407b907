"""What functions return, as the contents of resources and the messages of prompts."""

from __future__ import annotations

from base64 import b64encode

from pydantic_core import to_json

from mcp_host.testing._server.revision import given
from mcp_host.types import (
    BlobResourceContents,
    GetPromptResult,
    PromptMessage,
    ReadResourceResult,
    ResourceContents,
    TextContent,
    TextResourceContents,
)


def as_contents(uri: str, value: object, mime_type: str | None) -> ReadResourceResult:
    """What was read: text, bytes, contents (one or several) as they are, and anything else as JSON."""
    match value:
        case ReadResourceResult():
            return value
        case TextResourceContents() | BlobResourceContents():
            return ReadResourceResult(contents=[value])
        case list() if value and all(isinstance(item, ResourceContents) for item in value):
            return ReadResourceResult(contents=list(value))
    kind = given(mime_type=mime_type)
    match value:
        case str():
            return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=value, **kind)])
        case bytes():
            return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob=b64encode(value).decode(), **kind)])
    kind.setdefault("mime_type", "application/json")
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=to_json(value).decode(), **kind)])


def as_prompt(value: object, description: str | None) -> GetPromptResult:
    """The filled-in prompt: a text is the user's message, messages (one or several) are as they are.

    Raises:
        TypeError: It is anything else.
    """
    described = given(description=description)
    match value:
        case GetPromptResult():
            return value
        case str():
            message = PromptMessage(role="user", content=TextContent(text=value))
            return GetPromptResult(messages=[message], **described)
        case PromptMessage():
            return GetPromptResult(messages=[value], **described)
        case list() if value and all(isinstance(item, PromptMessage) for item in value):
            return GetPromptResult(messages=list(value), **described)
    raise TypeError(f"a prompt returns text or messages, not {type(value).__name__}")
