"""The rules of a sampling conversation: one by one, and as properties of all conversations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host.errors import ProtocolError
from mcp_host.protocol import conversation
from mcp_host.types import (
    AssistantContentBlock,
    AssistantMessage,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
    UserContentBlock,
    UserMessage,
)
from mcp_host.types.content import Role

Conversation = list[SamplingMessage]


def user(*blocks: UserContentBlock) -> UserMessage:
    return UserMessage(blocks)


def assistant(*blocks: AssistantContentBlock) -> AssistantMessage:
    return AssistantMessage(blocks)


def text(words: str = "words") -> TextContent:
    return TextContent(text=words)


def use(id: str) -> ToolUseContent:
    return ToolUseContent(id=id, name="add", input={"a": 1})


def result(id: str) -> ToolResultContent:
    return ToolResultContent(tool_use_id=id, content=[TextContent(text="2")])


def tool(name: str) -> Tool:
    return Tool(name=name, input_schema={"type": "object"})


VALID: dict[str, Conversation] = {
    "one question": [user(text())],
    "several kinds of content": [user(text(), ImageContent(data="AA==", mime_type="image/png"))],
    "two user messages in a row": [user(text()), user(text())],
    "the assistant's turn to be continued": [user(text()), assistant(text())],
    "the assistant begins": [assistant(text()), user(text())],
    "one tool": [user(text()), assistant(use("1")), user(result("1"))],
    "text beside a tool use": [user(text()), assistant(text(), use("1")), user(result("1"))],
    "results in another order": [assistant(use("1"), use("2")), user(result("2"), result("1"))],
    "two rounds": [assistant(use("1")), user(result("1")), assistant(use("2")), user(result("2")), user(text())],
    "an empty text": [user(text(""))],
}


def test_a_valid_conversation_passes(subtests: pytest.Subtests) -> None:
    for case, messages in VALID.items():
        with subtests.test(case):
            conversation.check(messages)


UNANSWERED = "messages[1]: tool_use '1' of messages[0] has to be answered here, before anything else is said"
NO_RESULT = "messages[1]: tool_use '2' of messages[0] has no tool_result here"
BROKEN: dict[str, tuple[Conversation, str]] = {
    "no messages": ([], "messages: there is none, and a model needs at least one"),
    "an empty message": ([user(text()), assistant()], "messages[1]: it has no content"),
    "text instead of a result": ([assistant(use("1")), user(text())], UNANSWERED),
    "the assistant goes on": ([assistant(use("1")), assistant(text())], UNANSWERED),
    "a missing result": ([assistant(use("1"), use("2")), user(result("1"))], NO_RESULT),
    "a missing result of two messages": ([assistant(use("1")), assistant(use("2")), user(result("1"))], UNANSWERED),
    "a text between the call and its result": ([assistant(use("1")), assistant(text()), user(result("1"))], UNANSWERED),
    "a text among the calls": ([assistant(use("1")), assistant(use("2"), text()), user(result("1")), user(result("2"))], UNANSWERED),
    "a text between the results": ([assistant(use("1"), use("2")), user(result("1")), user(text()), user(result("2"))], NO_RESULT),
    "a doubled result": ([assistant(use("1")), user(result("1"), result("1"))], "messages[1]: tool_use '1' has more than one tool_result"),
    "an unknown result": ([assistant(use("1")), user(result("1"), result("2"))], "messages[1]: tool_result '2' answers no tool_use of the message before it"),
    "an orphan": ([user(text()), user(result("1"))], "messages[1]: tool_result '1' answers no tool_use of the message before it"),
    "a result of an earlier round": (
        [assistant(use("1")), user(result("1")), assistant(text()), user(result("1"))],
        "messages[3]: tool_result '1' answers no tool_use of the message before it",
    ),
    "nothing after a tool use": ([user(text()), assistant(use("1"))], "messages[1]: tool_use '1' has no tool_result in a message after it"),
    "one id twice in a message": (
        [assistant(use("1"), use("1")), user(result("1"))],
        "messages[0]: the id '1' belongs to an earlier tool_use; each needs its own id",
    ),
    "an id of an earlier round": (
        [assistant(use("1")), user(result("1")), assistant(use("1")), user(result("1"))],
        "messages[2]: the id '1' belongs to an earlier tool_use; each needs its own id",
    ),
    "an id that is not fit to be shown": (
        [assistant(use("\x1b[2J" + "x" * 100))],
        f"messages[0]: tool_use '\\x1b[2J{'x' * 76}… (104 characters)' has no tool_result in a message after it",
    ),
}  # fmt: skip


@pytest.mark.fault("S02", "S04", "S06", "S15")
def test_a_broken_rule_is_named_with_its_message(subtests: pytest.Subtests) -> None:
    for (case, (messages, problem)), read in product(
        BROKEN.items(), (conversation.check, conversation.check_and_merge)
    ):
        with subtests.test(case, read=read.__name__):
            with pytest.raises(ProtocolError) as refusal:
                read(messages)

            assert str(refusal.value) == problem


MERGED: dict[str, tuple[Conversation, Conversation]] = {
    "two parallel calls": (
        [user(text()), assistant(use("1")), assistant(use("2")), user(result("1")), user(result("2"))],
        [user(text()), assistant(use("1"), use("2")), user(result("1"), result("2"))],
    ),
    "a text before the calls, and one after the results": (
        [assistant(text(), use("1")), assistant(use("2")), user(result("2")), user(result("1")), user(text())],
        [assistant(text(), use("1"), use("2")), user(result("2"), result("1")), user(text())],
    ),
    "results in one message already, and a text in the next": (
        [assistant(text()), assistant(use("1")), assistant(use("2")), user(result("1"), result("2"))],
        [assistant(text()), assistant(use("1"), use("2")), user(result("1"), result("2"))],
    ),
    "calls in one message already": (
        [assistant(use("1"), use("2")), user(result("1")), user(result("2"))],
        [assistant(use("1"), use("2")), user(result("1"), result("2"))],
    ),
    "between rounds that need no merging": (
        [
            *[assistant(use("1")), user(result("1")), assistant(use("2")), assistant(use("3"))],
            *[user(result("2")), user(result("3")), assistant(use("4")), user(result("4"))],
        ],
        [
            *[assistant(use("1")), user(result("1")), assistant(use("2"), use("3"))],
            *[user(result("2"), result("3")), assistant(use("4")), user(result("4"))],
        ],
    ),
}


def test_parallel_calls_with_one_block_per_message_are_merged(subtests: pytest.Subtests) -> None:
    for case, (flattened, merged) in MERGED.items():
        with subtests.test(case):
            with pytest.raises(ProtocolError, match=r"has no tool_result here$|has to be answered here"):
                conversation.check(flattened)

            assert conversation.check_and_merge(flattened) == merged


def test_merged_messages_keep_all_extra_fields_and_meta() -> None:
    def carrying(*blocks: AssistantContentBlock, **members: object) -> SamplingMessage:
        return assistant(*blocks).model_copy(update=members)

    first = carrying(use("1"), meta={"a": 1, "b": 1}, x=1, y=1)
    second = carrying(use("2"), meta={"b": 2}, y=2)

    turns = conversation.check_and_merge([first, second, user(result("1")), user(result("2"))])

    assert turns[0] == carrying(use("1"), use("2"), meta={"a": 1, "b": 2}, x=1, y=2)
    assert "meta" not in turns[1].model_fields_set


GOOD_TOOLS: list[tuple[list[Tool], ToolChoice | None]] = [
    ([], None),
    ([], ToolChoice(mode="auto")),
    ([tool("add"), tool("Add")], ToolChoice(mode="required")),
]
BAD_TOOLS: list[tuple[list[Tool], ToolChoice | None, str]] = [
    ([tool("")], None, "tools[0]: '' is no name: it is empty or cannot be printed"),
    ([tool("a"), tool("b\u202e")], None, "tools[1]: 'b\\u202e' is no name: it is empty or cannot be printed"),
    ([tool("a"), tool("b"), tool("a")], None, "tools[2]: tools[0] has the name 'a' already"),
    ([], ToolChoice(mode="required"), "toolChoice: a tool is required, and the request offers none"),
    (
        [tool("a")],
        ToolChoice.from_wire({"type": "tool", "name": "b"}),
        "toolChoice: the tool 'b' is required, and the request does not offer it",
    ),
]


@pytest.mark.fault("S10")
def test_tools_with_unique_names_pass_and_ambiguous_ones_are_rejected(subtests: pytest.Subtests) -> None:
    for tools, choice in GOOD_TOOLS:
        conversation.check_tools(tools, choice)
    for tools, choice, problem in BAD_TOOLS:
        with subtests.test(ascii(problem)):
            with pytest.raises(ProtocolError) as refusal:
                conversation.check_tools(tools, choice)

            assert str(refusal.value) == problem


# Properties: a legal conversation is a sequence of sayings and of tool rounds.

few = settings(max_examples=25, deadline=None)  # a dozen mutations share the work; types are built on first use


@st.composite
def conversations(draw: st.DrawFn, *, least_rounds: int = 0, said_with_calls: bool = True) -> Conversation:
    rounds = [True] * least_rounds + draw(st.lists(st.booleans(), max_size=5, min_size=0 if least_rounds else 1))
    messages: Conversation = []
    for number, with_tools in enumerate(draw(st.permutations(rounds))):
        if with_tools:
            ids = [f"call_{number}_{i}" for i in range(draw(st.integers(1, 3)))]
            said = draw(st.lists(st.builds(text, st.text(max_size=5)), max_size=2 if said_with_calls else 0))
            blocks: list[AssistantContentBlock] = [*said, *map(use, ids)]
            messages.append(assistant(*draw(st.permutations(blocks))))
            messages.append(user(*map(result, draw(st.permutations(ids)))))
        else:
            role: Role = draw(st.sampled_from(["user", "assistant"]))
            words = draw(st.lists(st.builds(text, st.text(max_size=5)), min_size=1, max_size=2))
            messages.append(SamplingMessage(role=role, content=words))
    return messages


@settings(deadline=None)
@given(conversations())
def test_every_valid_conversation_passes_unchanged(messages: Conversation) -> None:
    assert conversation.check_and_merge(messages) is messages


def flattened(messages: Conversation) -> Conversation:
    """With one block to a message, as a server of SEP-1577's first draft writes it."""
    return [message.model_copy(update={"content": [block]}) for message in messages for block in message.content]


@settings(deadline=None)
@given(conversations(said_with_calls=False))
def test_every_conversation_with_one_block_per_message_is_merged_into_the_valid_one(messages: Conversation) -> None:
    turns = [message for message in messages if message.tool_uses or isinstance(message.content[0], ToolResultContent)]
    read = conversation.check_and_merge(flattened(messages))

    assert [turn for turn in read if turn in turns] == turns
    assert flattened(read) == flattened(messages)


Mutation: TypeAlias = Callable[[st.DataObject, Conversation], Conversation]
Blocks: TypeAlias = list[UserContentBlock | AssistantContentBlock]


def pick(data: st.DataObject, messages: Conversation, kind: type[ToolUseContent | ToolResultContent]) -> int:
    """The place of a message that has blocks of that kind."""
    places = [i for i, message in enumerate(messages) if any(isinstance(block, kind) for block in message.content)]
    return data.draw(st.sampled_from(places))


def changed(
    kind: type[ToolUseContent | ToolResultContent], change: Callable[[st.DataObject, Blocks], Blocks]
) -> Mutation:
    """Change the blocks of a message that has such ones."""

    def mutation(data: st.DataObject, messages: Conversation) -> Conversation:
        at = pick(data, messages, kind)
        content = change(data, list(messages[at].content))
        return [*messages[:at], messages[at].model_copy(update={"content": content}), *messages[at + 1 :]]

    return mutation


def dropped(kind: type[ToolUseContent | ToolResultContent]) -> Mutation:
    """Drop a message that has such blocks."""

    def mutation(data: st.DataObject, messages: Conversation) -> Conversation:
        at = pick(data, messages, kind)
        return [*messages[:at], *messages[at + 1 :]]

    return mutation


def empty_a_message(data: st.DataObject, messages: Conversation) -> Conversation:
    at = data.draw(st.integers(0, len(messages) - 1))
    return [*messages[:at], SamplingMessage(role=messages[at].role, content=[]), *messages[at + 1 :]]


def lose_a_result(data: st.DataObject, results: Blocks) -> Blocks:
    del results[data.draw(st.integers(0, len(results) - 1))]
    return results


def call_twice_under_one_id(data: st.DataObject, blocks: Blocks) -> Blocks:
    calls = [block for block in blocks if isinstance(block, ToolUseContent)]
    return [*blocks, data.draw(st.sampled_from(calls))]


def come_between(data: st.DataObject, messages: Conversation) -> Conversation:
    at = pick(data, messages, ToolResultContent)
    role: Role = data.draw(st.sampled_from(["user", "assistant"]))
    return [*messages[:at], SamplingMessage(role=role, content=text()), *messages[at:]]


def repeat_a_round(data: st.DataObject, messages: Conversation) -> Conversation:
    at = pick(data, messages, ToolUseContent)
    return [*messages, messages[at], messages[at + 1]]


MUTATIONS: dict[str, Mutation] = {
    "a message is empty": empty_a_message,
    "a result is lost": changed(ToolResultContent, lose_a_result),
    "a result is doubled": changed(ToolResultContent, lambda data, blocks: [*blocks, data.draw(st.sampled_from(blocks))]),
    "a result is of no call": changed(ToolResultContent, lambda data, blocks: [*blocks, result("unknown")]),
    "a result is renamed": changed(ToolResultContent, lambda data, blocks: [result("renamed"), *blocks[1:]]),
    "the results are dropped": dropped(ToolResultContent),
    "the calls are dropped": dropped(ToolUseContent),
    "a message comes between": come_between,
    "it stops before the results": lambda data, messages: messages[: pick(data, messages, ToolResultContent)],
    "two calls have one id": changed(ToolUseContent, call_twice_under_one_id),
    "a round is repeated": repeat_a_round,
}  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
@few
@given(data=st.data())
def test_every_single_fault_is_rejected(mutation: Mutation, data: st.DataObject) -> None:
    broken = mutation(data, data.draw(conversations(least_rounds=1)))

    with pytest.raises(ProtocolError, match=r"^messages"):
        conversation.check(broken)
    with pytest.raises(ProtocolError, match=r"^messages"):
        conversation.check_and_merge(broken)
