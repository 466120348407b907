"""The types that the installed SDKs know: each is read, left out on purpose, or refused. A new one fails here first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from anthropic.types import ContentBlock, RawContentBlockDelta, StopReason
from anthropic.types.beta import BetaContentBlock, BetaRawContentBlockDelta, BetaStopReason
from google.genai.types import FinishReason, Part
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent

from mcp_host.providers import anthropic, gemini
from mcp_host.providers import openai_responses as responses


def tags(union: Any) -> Iterator[str]:
    """The values of ``type`` in a union of models."""
    if hasattr(union, "model_fields"):
        yield from get_args(union.model_fields["type"].annotation)
    elif get_origin(union) is Annotated:
        yield from tags(get_args(union)[0])
    else:
        for member in get_args(union):
            yield from tags(member)


BLOCKS_OF_TOOLS = {  # of tools that Anthropic runs
    *("advisor_tool_result", "bash_code_execution_tool_result", "code_execution_tool_result", "container_upload"),
    *("mcp_tool_listing", "mcp_tool_result", "mcp_tool_use", "server_tool_use"),
    *("text_editor_code_execution_tool_result", "tool_search_tool_result"),
    *("web_fetch_tool_result", "web_search_tool_result"),
}
STOPS = anthropic.STOP_REASONS.keys() | anthropic.PAUSED | {"refusal"}


def test_the_blocks_of_anthropic_are_known() -> None:
    known = {"text", "tool_use", "compaction", "fallback"} | anthropic.THINKING | BLOCKS_OF_TOOLS

    assert {*tags(ContentBlock), *tags(BetaContentBlock)} <= known
    assert {*get_args(StopReason), *get_args(BetaStopReason)} <= STOPS


def test_the_deltas_of_anthropic_are_known() -> None:
    known = anthropic.TEXT_FIELDS.keys() | anthropic.WHOLE_DELTAS | {"citations_delta"}

    assert {*tags(RawContentBlockDelta), *tags(BetaRawContentBlockDelta)} <= known


ITEMS_OF_TOOLS = {  # of tools that OpenAI runs, or what the host has sent
    *("additional_tools", "apply_patch_call_output", "code_interpreter_call", "computer_call_output"),
    *("custom_tool_call_output", "file_search_call", "function_call_output", "local_shell_call_output", "mcp_call"),
    *("mcp_approval_response", "mcp_list_tools", "program", "program_output", "shell_call_output"),
    *("tool_search_output", "web_search_call"),
}
LIFECYCLE = {
    *("error", "response.completed", "response.created", "response.failed", "response.incomplete"),
    *("response.output_item.added", "response.output_item.done"),
}
REPEATED = (  # what the items say again when they are done, and how far tools of OpenAI are
    *("response.audio.", "response.code_interpreter_call", "response.compaction.", "response.content_part."),
    *("response.custom_tool_call_input.", "response.file_search_call.", "response.image_generation_call."),
    *("response.in_progress", "response.mcp_", "response.output_text.annotation.", "response.queued"),
    *("response.reasoning_summary_part.", "response.shell_call", "response.web_search_call."),
)


def test_the_items_of_openai_are_known() -> None:
    known = responses.PLAIN | responses.FOR_HOST | {"reasoning", "compaction", "image_generation_call"}

    assert {*tags(ResponseOutputItem)} <= known | ITEMS_OF_TOOLS


def test_the_events_of_openai_are_known() -> None:
    known = responses.DELTAS.keys() | responses.DONE.keys() | LIFECYCLE

    assert [kind for kind in tags(ResponseStreamEvent) if kind not in known and not kind.startswith(REPEATED)] == []


PASSED_ON = {"OTHER", "IMAGE_OTHER", "NO_IMAGE", "FINISH_REASON_UNSPECIFIED"}
PARTS = {
    *("text", "thought", "thought_signature", "function_call", "inline_data"),  # read
    *("executable_code", "code_execution_result", "tool_call", "tool_response"),  # `gemini.OWN_TOOLS`
    *("function_response", "file_data", "media_resolution", "video_metadata", "part_metadata"),  # of requests
    *("audio_transcription", "media_processing", "speech_metadata"),
    *("document_metadata", "spreadsheet_metadata", "audio_metadata"),
}


def test_the_parts_and_finish_reasons_of_gemini_are_known() -> None:
    assert {*Part.model_fields} <= PARTS
    assert {reason.name for reason in FinishReason} <= (
        gemini.STOP_REASONS.keys() | gemini.FAILED.keys() | gemini.UNUSABLE.keys() | PASSED_ON
    )
