"""How large a file may be for each provider, which refuses a larger one in every later prompt, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mcp_host.providers.exchange.file_types import image_size
from mcp_host.providers.exchange.requests import file_in, is_of_user, media_type
from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import ContentBlock, ToolResultContent, ToolUseContent
from mcp_host.types.sampling import SamplingMessageContentBlock

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """What a provider publishes of the size of files. Without arguments there are no limits."""

    sizes: tuple[tuple[str, int], ...] = ()
    """How the type of a file begins, and its characters of base64 at most: the first that fits counts."""

    side: int | None = None
    """Pixels of the longer side of an image at most."""

    many: int | None = None
    """Images in one request. If there are more, *side_of_many* takes the place of *side*."""

    side_of_many: int = 0


NO_LIMITS = FileLimits()

CLAUDE = FileLimits(sizes=(("image/", 10 * MiB), ("", 32 * MiB)), side=8000, many=20, side_of_many=2000)
"""https://platform.claude.com/docs/en/build-with-claude/vision. 32 MB may be the whole request."""

CLAUDE_ELSEWHERE = replace(CLAUDE, sizes=(("image/", 5 * MiB), ("", 32 * MiB)))
"""The same page, of Amazon Bedrock and Google Cloud: "per-image limit of 5 MB (base64-encoded)"."""

OPENAI = FileLimits(sizes=(("", 50 * MiB),))
"""https://platform.openai.com/docs/guides/images-vision: "Up to 50 MB total payload size per request"."""

GEMINI = FileLimits(sizes=(("application/pdf", 50 * MiB * 4 // 3), ("", 100 * MiB)))
"""https://ai.google.dev/gemini-api/docs/document-processing and file-input-methods: 50 MB of a PDF file, before base64."""

BEDROCK = FileLimits(sizes=(("image/", 5 * MiB),), side=8000)
"""https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html: 3.75 MB of an image, before base64."""


def claude_limits(client: object) -> FileLimits:
    """The limits of Claude behind a *client* of the SDK ``anthropic``."""
    name = type(client).__name__
    return CLAUDE_ELSEWHERE if "Bedrock" in name or "Vertex" in name else CLAUDE


def size_problem(block: ContentBlock, limits: FileLimits) -> str | None:
    """What a model does not take, if *block* is a file that is too large; None if it may have it."""
    if limits is NO_LIMITS or (file := file_in(block)) is None:
        return None
    data, kind = file[0], media_type(file[1])
    for beginning, most in limits.sizes:
        if kind.startswith(beginning):
            if len(data) > most:
                return f"no file of more than {most // MiB} MiB in base64"
            break
    size = None if limits.side is None else image_size(data)
    return size and _too_large(size, limits.side)


def problems_of_many(
    request: SamplingRequest, blocks: Iterable[tuple[int, SamplingMessageContentBlock]], limits: FileLimits
) -> Mapping[int, str]:
    """What a model does not take because there are so many images, by the `id` of their block.

    That is as little as will do: the oldest of the images that are too large among many, and those of the host's user last.
    """
    if limits.many is None:
        return {}
    images = [
        (is_of_user(request, index, block), id(one), size)
        for index, block in blocks
        for one in _content(block)
        if (file := file_in(one)) is not None and (size := image_size(file[0])) and not size_problem(one, limits)
    ]
    problems = {
        image: f"{problem} if there are more than {limits.many}"
        for _, image, size in sorted(images, key=lambda each: each[0])
        if (problem := _too_large(size, limits.side_of_many))
    }
    surplus = max(0, len(images) - limits.many)
    return dict([*problems.items()][:surplus])


def _content(block: SamplingMessageContentBlock) -> list[ContentBlock]:
    match block:
        case ToolUseContent():
            return []
        case ToolResultContent(content=content):
            return content
        case _:
            return [block]


def _too_large(size: tuple[int, int], side: int | None) -> str | None:
    if side is None or max(size) <= side:
        return None
    return f"no image of {size[0]} x {size[1]} pixels, but {side} a side at most"
