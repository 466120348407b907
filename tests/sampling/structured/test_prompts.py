"""Messages and tools as authors write them, and what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel
from pydantic.alias_generators import to_camel

from mcp_host.functions import FunctionTool
from mcp_host.protocol.conversation import check_and_merge
from mcp_host.sampling.structured.prompts import read_choice, read_conversation, read_tools
from mcp_host.types import (
    AssistantMessage,
    ImageContent,
    PromptMessage,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from tests.extent import THOROUGH
from tests.sampling.asking import Wire, result, text, use


def user(*blocks: Wire) -> Wire:
    return {"role": "user", "content": blocks[0] if len(blocks) == 1 else list(blocks)}


def assistant(*blocks: Wire) -> Wire:
    return {"role": "assistant", "content": blocks[0] if len(blocks) == 1 else list(blocks)}


def call(id: str, arguments: object = "{}", name: str = "add") -> Wire:
    """A tool call in OpenAI's shape."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Wire, **content: object) -> Wire:
    """A message with tool calls in OpenAI's shape."""
    return {"role": "assistant", "tool_calls": list(calls), **content}


def tool(id: str, content: object = "3") -> Wire:
    """The result of a call in OpenAI's shape."""
    return {"role": "tool", "tool_call_id": id, "content": content}


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/mpeg"}
QUESTION: Wire = {"role": "user", "content": "?"}
BY_OPENAI: Wire = {"refusal": None, "annotations": [], "audio": None, "function_call": None}  # as its SDK dumps them

OF_MCP: dict[str, tuple[Sequence[SamplingMessage | Wire], list[Wire]]] = {
    "ours": ([UserMessage("?"), AssistantMessage("!")], [user(text("?")), assistant(text("!"))]),
    "MCP: one block": ([user(text("?"))], [user(text("?"))]),
    "MCP: two blocks": ([user(text("?"), IMAGE)], [user(text("?"), IMAGE)]),
    "MCP: meta": ([{**user(text("?")), "_meta": {"k": 1}}], [{**user(text("?")), "_meta": {"k": 1}}]),
    "a block's wire": ([user(TextContent(text="?").to_wire())], [user(text("?"))]),
    "our blocks": ([{"role": "user", "content": [TextContent(text="?"), IMAGE]}], [user(text("?"), IMAGE)]),
    "a tuple": ([{"role": "user", "content": (text("?"),)}], [user(text("?"))]),
    "MCP: tools": (
        [user(text("?")), assistant(use("1"), use("2")), user(result("1"), result("2"))],
        [user(text("?")), assistant(use("1"), use("2")), user(result("1"), result("2"))],
    ),
}

OF_OPENAI: dict[str, tuple[Sequence[SamplingMessage | Wire], list[Wire]]] = {
    "a text": ([{"role": "user", "content": "?", "name": "Ann"}], [user(text("?"))]),
    "an answer of its SDK": (
        [QUESTION, {"role": "assistant", "content": "!", "tool_calls": None, **BY_OPENAI}],
        [user(text("?")), assistant(text("!"))],
    ),
    "parts": (
        [
            user(
                text("?"),
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
            )
        ],
        [user(text("?"), IMAGE, AUDIO)],
    ),
    "parallel calls": (
        [
            QUESTION,
            calling(call("1", '{"a": 1}'), call("2", {}), content=None),
            tool("1"),
            tool("2", [text("4"), text("5")]),
            {"role": "assistant", "content": "It is 3."},
        ],
        [
            user(text("?")),
            assistant(use("1", a=1), use("2")),
            user(result("1", text("3")), result("2", text("4"), text("5"))),
            assistant(text("It is 3.")),
        ],
    ),
    "a text with calls": (
        [
            QUESTION,
            calling(call("1"), content="Let me add."),
            tool("1"),
            calling(call("2"), content=""),
            tool("2", "4"),
        ],
        [
            user(text("?")),
            assistant(text("Let me add."), use("1")),
            user(result("1", text("3"))),
            assistant(use("2")),
            user(result("2", text("4"))),
        ],
    ),
    "refusals": (
        [
            QUESTION,
            {"role": "assistant", "content": None, "refusal": "No."},
            {"role": "user", "content": "Please!"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No!"}]},
        ],
        [user(text("?")), assistant(text("No.")), user(text("Please!")), assistant(text("No!"))],
    ),
    "shapes mixed": (
        [UserMessage("?"), assistant(use("1")), tool("1")],
        [user(text("?")), assistant(use("1")), user(result("1", text("3")))],
    ),
}


def test_messages_of_ours_and_in_the_shapes_of_mcp_and_openai(subtests: pytest.Subtests) -> None:
    for case, (messages, read) in {**OF_MCP, **OF_OPENAI}.items():
        with subtests.test(case):
            conversation, system_prompt = read_conversation(None, messages)

            assert [message.to_wire() for message in conversation] == read
            assert system_prompt is None


SYSTEM: list[tuple[list[Wire], str | None]] = [
    ([{"role": "system", "content": "Be brief."}], "Be brief."),
    ([{"role": "developer", "content": [text("Be brief.")]}], "Be brief."),
    ([{"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}], "Be brief.\n\nBe kind."),
    ([{"role": "system", "content": ""}], None),
]


def test_system_messages_are_the_system_prompt(subtests: pytest.Subtests) -> None:
    for messages, prompt in SYSTEM:
        with subtests.test(messages=messages):
            conversation, system_prompt = read_conversation(None, [*messages, QUESTION])

            assert [message.to_wire() for message in conversation] == [user(text("?"))]
            assert system_prompt == prompt


class OfAnotherSdk(BaseModel):
    """Stands for the types of the official SDK and of OpenAI's."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")
    mime_type: str | None = None


def contents(**fields: str) -> Wire:
    return {"type": "resource", "resource": {"uri": "file:///a", **fields}}


PDF_NAMED = "[contents of file:///a, application/pdf, 4 characters of base64]"
OF_PROMPTS: list[tuple[Wire, Wire]] = [
    (text("?"), text("?")),
    (IMAGE, IMAGE),
    (contents(text="print()"), text("Contents of file:///a:\nprint()")),
    (contents(uri="", text="print()"), text("print()")),
    (contents(blob="aGk=", mimeType="image/png"), IMAGE),
    (contents(blob="aGk=", mimeType="audio/mpeg"), AUDIO),
    (contents(blob="aGk=", mimeType="application/pdf"), text(PDF_NAMED)),
    (contents(blob="aGk="), text("[contents of file:///a, 4 characters of base64]")),
    (
        {"type": "resource_link", "uri": "file:///b", "name": "b", "_meta": {"k": 1}},
        text('{"name":"b","uri":"file:///b","type":"resource_link"}'),
    ),
]


def test_messages_of_prompts_have_the_contents_of_resources(subtests: pytest.Subtests) -> None:
    """As the client gets them, as the official SDK does, and as JSON that an application has kept."""
    for block, read in OF_PROMPTS:
        for role in ("user", "assistant"):
            wire = {"role": role, "content": block}
            for said in (PromptMessage.from_wire(wire), OfAnotherSdk.model_validate(wire), wire):
                with subtests.test(block=block, role=role, said=type(said)):
                    conversation, _ = read_conversation(None, [QUESTION, said])

                    assert conversation[-1].to_wire() == {"role": role, "content": read}
    [message], _ = read_conversation(None, [PromptMessage.from_wire(user({"type": "video", "data": "aGk="}))])
    assert message.to_wire() == user(text("[video, which this version does not know]"))


def test_the_log_says_that_a_model_does_not_get_a_file_of_a_prompt(caplog: pytest.LogCaptureFixture) -> None:
    for kind in ("image/png", "application/pdf"):
        read_conversation(None, [PromptMessage.from_wire(user(contents(blob="aGk=", mimeType=kind)))])

    assert caplog.messages == [f"a model gets a text in the place of what no message can have: {PDF_NAMED}"]


def test_messages_and_tools_of_other_sdks_are_read_as_their_json() -> None:
    block = OfAnotherSdk.model_validate(
        {"type": "image", "data": "aGk=", "mime_type": "image/png", "annotations": None}
    )
    said = OfAnotherSdk.model_validate(calling(call("1"), content=None))
    offered = OfAnotherSdk.model_validate({"name": "t", "inputSchema": {"type": "object"}, "description": None})

    conversation, _ = read_conversation(
        None,
        [
            OfAnotherSdk.model_validate({"role": "user", "content": [block], "_meta": None}),
            said,
            tool("1"),
            {"role": "assistant", "content": OfAnotherSdk.model_validate(text("It is 3."))},
        ],
    )

    assert [message.to_wire() for message in conversation] == [
        user({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        assistant(use("1")),
        user(result("1", text("3"))),
        assistant(text("It is 3.")),
    ]
    assert read_tools([offered])["t"].definition.to_wire() == {"name": "t", "inputSchema": {"type": "object"}}


UNREADABLE: list[tuple[object, object, type[Exception], str]] = [
    (None, None, TypeError, "give either a prompt or messages"),
    ("?", [UserMessage("?")], TypeError, "give either a prompt or messages, not both"),
    (UserMessage("?"), None, TypeError, "the prompt must be a str, not UserMessage; a conversation is given as mes"),
    (None, "?", TypeError, "messages must be a list of messages, not str"),
    (None, QUESTION, TypeError, "messages must be a list of messages, not dict"),
    (None, UserMessage("?"), TypeError, "messages must be a list of messages, not UserMessage"),
    (None, [QUESTION, "?"], TypeError, r"messages\[1\] must be a SamplingMessage or a dict, not str"),
    (None, [{"role": "user", "content": 5}], TypeError, r"messages\[0\]: content must be a str, a block or a list"),
    (None, [{"role": "user", "content": b"?"}], TypeError, r"messages\[0\]: content must be a str, .* not bytes"),
    (None, [{"role": "user", "content": ""}], ValueError, r"messages\[0\]: it has no content"),
    (None, [{"role": "assistant", "tool_calls": call("1")}], TypeError, r"\[0\]: tool_calls must be a list, not dict"),
]

INVALID_MESSAGES: dict[str, list[Any]] = {
    "messages: there is none, and a model needs at least one": [],
    r"messages\[1\]: its role should be 'user' or 'assistant'": [QUESTION, {"role": "bot", "content": "?"}],
    r"messages\[0\]: it has no content": [{"role": "user"}],
    r"messages\[0\]: content.0: .*'video'": [user({"type": "video"})],
    r"messages\[1\]: a system message has to come before all others": [QUESTION, {"role": "system", "content": "Be brief."}],
    r"messages\[0\]: a system message has to be a text, and this has a block of image": [{"role": "system", "content": [text("Be brief."), IMAGE]}, QUESTION],
    r"messages\[0\]: content\[1\]: the image must be a data URL in base64, because nothing is fetched": [
        {"role": "user", "content": [text("?"), {"type": "image_url", "image_url": {"url": "https://a.test/b"}}]}
    ],
    r"messages\[0\]: the format of audio must be wav or mp3, not 'ogg'": [user({"type": "input_audio", "input_audio": {"data": "", "format": "ogg"}})],
    r"messages\[1\]: tool_calls\[0\]: the arguments are not JSON: EOF": [QUESTION, calling(call("1", "{"))],
    r"messages\[1\]: tool_calls\[1\]: the arguments must be a JSON object, not '\[1\]'": [QUESTION, calling(call("1"), call("2", "[1]"))],
    r"messages\[1\]: tool_calls\[0\] must have an id and a function, with a name and arguments, an object or its JSON": [
        QUESTION,
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom"}]},
    ],
    r"messages\[1\]: function_call has no counterpart in MCP": [
        QUESTION,
        {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
    ],
    r"messages\[2\]: content.0.*toolUseId: Input should be a valid string": [
        QUESTION,
        calling(call("1")),
        {"role": "tool", "content": "3"},
    ],
    r"messages\[6\]: tool_use '3' of messages\[5\] has to be answered here, before anything else is said": [
        *({"role": "system", "content": "Be brief."}, QUESTION),
        *(calling(call("1"), call("2")), tool("1"), tool("2")),
        *(calling(call("3")), QUESTION),
    ],
}  # fmt: skip


def test_what_cannot_be_read_is_an_error_that_names_the_index(subtests: pytest.Subtests) -> None:
    for prompt, messages, error, problem in UNREADABLE:
        with subtests.test(prompt=prompt, messages=messages), pytest.raises(error, match=problem):
            read_conversation(prompt, messages)
    for problem, wrong in INVALID_MESSAGES.items():
        with subtests.test(problem), pytest.raises(ValueError, match=problem):
            read_conversation(None, wrong)


# Tools


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Point(BaseModel):
    x: int


class Line(BaseModel):
    """A line."""

    start: Point
    end: Annotated[Point, Field(description="Where it ends.")]


Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    number: int


POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
LINE = {
    "type": "object",
    "properties": {"start": POINT, "end": {**POINT, "description": "Where it ends."}},
    "required": ["start", "end"],
}
ANY = {"type": "object"}

TOOLS: dict[str, tuple[Any, Wire | Tool]] = {
    "Tool": (Tool(name="t", input_schema=ANY), {"name": "t", "inputSchema": ANY}),
    "a model": (Line, {"name": "Line", "description": "A line.", "inputSchema": LINE}),
    "a dict": ({"name": "t", "inputSchema": ANY, "title": "T"}, {"name": "t", "inputSchema": ANY, "title": "T"}),
    "a dict with a model": ({"name": "t", "inputSchema": Line}, {"name": "t", "description": "A line.", "inputSchema": LINE}),
    "its own words": ({"name": "t", "description": "Draw.", "inputSchema": Line}, {"name": "t", "description": "Draw.", "inputSchema": LINE}),
    "FunctionTool": (FunctionTool(add, name="sum", description="Sum."), FunctionTool(add, name="sum", description="Sum.").definition),
    "a function": (add, FunctionTool(add).definition),
    "$ref": (
        {"name": "t", "inputSchema": {**ANY, "properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": POINT}}},
        {"name": "t", "inputSchema": {**ANY, "properties": {"p": POINT}}},
    ),
    "OpenAI's": (
        {"type": "function", "function": {"name": "t", "description": "T.", "parameters": POINT, "strict": True}},
        {"name": "t", "description": "T.", "inputSchema": POINT},
    ),
    "OpenAI's without parameters": ({"type": "function", "function": {"name": "t"}}, {"name": "t", "inputSchema": {**ANY, "properties": {}}}),
    "a generic model": (Page[int], {"name": "Page_int", "inputSchema": {**ANY, "properties": {"number": {"type": "integer"}}, "required": ["number"]}}),
}  # fmt: skip


def test_tools_of_all_kinds(subtests: pytest.Subtests) -> None:
    for case, (tool, definition) in TOOLS.items():
        with subtests.test(case):
            (offered,) = read_tools([tool]).values()

            assert offered.definition.to_wire() == (
                definition.to_wire() if isinstance(definition, Tool) else definition
            )


BAD_TOOLS: dict[str, tuple[Any, type[Exception], str]] = {
    "a text": ("add", TypeError, "tools must be a list of tools, not str"),
    "a dict": ({"add": add}, TypeError, "tools must be a list of tools, not dict"),
    "a number": ([add, 3], TypeError, r"tools\[1\]: a int is no tool, function, pydantic model or dict"),
    "a lambda": ([lambda a: a], TypeError, r"tools\[0\]: .* has no name: give one"),
    "malformed": ([add, {"name": "t"}], ValueError, r"tools\[1\]: inputSchema: Field required"),
    "a name twice": ([add, FunctionTool(add)], ValueError, r"tools\[1\]: tools\[0\] has the name 'add' already"),
    "remote": (
        [add, {"name": "t", "inputSchema": {**ANY, "allOf": [{"$ref": "https://a.test/schema"}]}}],
        ValueError,
        r"tools\[1\]: the schema refers to 'https://a.test/schema', and nothing is fetched",
    ),
    "no object": (
        [add, {"name": "t", "inputSchema": {"type": "string"}}],
        ValueError,
        r"tools\[1\]: the inputSchema of 't' has to be that of an object, with \"type\": \"object\"",
    ),
    "no type": ([Tool(name="t", input_schema={})], ValueError, r"tools\[0\]: the inputSchema of 't' has to be that of an obj"),
    "an inner schema": (
        [{"name": "t", "inputSchema": {**ANY, "properties": {"a": {"type": "integr"}}}}],
        ValueError,
        r"tools\[0\]: the inputSchema of 't': .*'integr'",
    ),
    "generic models": ([RootModel[list[int]], RootModel[list[int]]], ValueError, r"has the name 'RootModel_list_int' already"),
    "OpenAI's": ([{"type": "function", "function": {"name": "t", "parameters": 5}}], ValueError, r"tools\[0\]: inputSchema: Input should be"),
}  # fmt: skip


def test_a_bad_tool_is_an_error_that_names_its_index(subtests: pytest.Subtests) -> None:
    for case, (tools, error, problem) in BAD_TOOLS.items():
        with subtests.test(case), pytest.raises(error, match=problem):
            read_tools(tools)


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        (None, None),
        ("auto", {"mode": "auto"}),
        ("required", {"mode": "required"}),
        ("none", {"mode": "none"}),
        (ToolChoice(mode="auto"), {"mode": "auto"}),
        ("add", {"mode": "required", "name": "add"}),
    ],
    ids=str,
)
def test_tool_choices_of_all_kinds(choice: Any, read: Wire | None) -> None:
    found = read_choice(choice, read_tools([add, Line]))

    assert (None if found is None else found.to_wire()) == read


BAD_CHOICES: list[tuple[Any, list[Any], type[Exception], str]] = [
    ("subtract", [add], ValueError, "the tool 'subtract' is required, and the request does not offer it"),
    (3, [add], TypeError, "tool_choice must be a str or a ToolChoice, not int"),
    ("required", [], ValueError, "a tool is required, and the request offers none"),
]


def test_a_bad_tool_choice_is_an_error(subtests: pytest.Subtests) -> None:
    for choice, tools, error, problem in BAD_CHOICES:
        with subtests.test(choice=choice), pytest.raises(error, match=problem):
            read_choice(choice, read_tools(tools))


def test_a_message_keeps_its_blocks_as_they_are() -> None:
    message = SamplingMessage(role="assistant", content=[ImageContent(data="aGk=", mime_type="image/png")])
    calls = AssistantMessage(ToolUseContent(id="1", name="add", input={}))
    results = UserMessage(ToolResultContent(tool_use_id="1", content=[]))

    conversation, _ = read_conversation(None, [UserMessage("?"), message, calls, results])

    assert conversation == [UserMessage("?"), message, calls, results]


# Anything


NAMES = [
    *("role", "content", "type", "text", "tool_calls", "function"),
    *("name", "arguments", "id", "image_url", "url", "input"),
]
WORDS = [
    *("user", "assistant", "tool", "system", "text", "image_url"),
    *("tool_use", "refusal", "{}", "data:image/png;base64,", ""),
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1) | st.sampled_from(WORDS) | st.just(TextContent(text="?")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=300 if THOROUGH else 60)
@given(
    st.lists(
        ANYTHING
        | st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": ANYTHING},
            optional={"tool_calls": ANYTHING, "tool_call_id": ANYTHING, "refusal": ANYTHING},
        ),
        max_size=4,
    )
)
def test_anything_is_a_conversation_or_an_error_of_its_author(messages: list[Any]) -> None:
    try:
        conversation, _ = read_conversation(None, messages)
    except (TypeError, ValueError) as exc:
        problem: str | None = str(exc)
    else:
        problem = None
        assert check_and_merge(conversation) == conversation

    assert problem is None or problem.startswith("messages")
