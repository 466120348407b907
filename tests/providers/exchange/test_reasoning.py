"""Reasoning is kept in the host and restored on the next turn: for the loop that it belongs to, and for no other."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host.errors import InputRefused
from mcp_host.providers import ReasoningStore
from mcp_host.providers.anthropic import AnthropicModel
from mcp_host.providers.exchange.reasoning import MAX_TURNS, META_KEY, AlteredHistory, Conversation, Restored
from mcp_host.sampling import OuterCall, SamplingRequest
from mcp_host.types import AssistantContentBlock, AssistantMessage, ImageContent, TextContent, ToolUseContent
from tests.extent import THOROUGH
from tests.providers.prompts import names_of
from tests.sampling.asking import Wire, assistant, request, result, text, use, user

OWNER = ("anthropic", "claude")
LONG = [{"type": "thinking", "thinking": "x" * 1500}]
TURN = [{"type": "thinking", "signature": "s"}, {"type": "tool_use", "id": "call_0"}]


def call(id: str = "call_0", name: str = "add", **input: object) -> ToolUseContent:
    return ToolUseContent(id=id, name=name, input=input)


SAID: list[AssistantContentBlock] = [TextContent(text="So:"), TextContent(text=""), call(a=1, b=[2]), call("call_1")]


def keep(
    store: ReasoningStore,
    said: list[AssistantContentBlock] | None = None,
    *,
    turn: object = TURN,
    asked: SamplingRequest | None = None,
) -> list[Wire]:
    """The blocks that the server gets."""
    asked = asked or request()
    names = names_of(asked, AnthropicModel.name_rule)
    conversation = Conversation(asked)
    sent = store.keep(turn, said or SAID, request=asked, conversation=conversation, belongs_to=OWNER, names=names)
    wire: Any = AssistantMessage(sent).to_wire()["content"]
    return [*wire] if isinstance(wire, list) else [wire]


def restore(
    store: ReasoningStore,
    *messages: Wire,
    outer: OuterCall | None = None,
    server: str = "calculator",
    owner: tuple[str, str] = OWNER,
    altered: AlteredHistory = "continue",
    **fields: Any,
) -> Restored:
    asked = request(*messages, outer=outer, server=server, **fields)
    names = names_of(asked, AnthropicModel.name_rule)
    conversation = Conversation(asked)
    return store.restore(asked, conversation=conversation, belongs_to=owner, names=names, altered=altered)


def without_key(blocks: list[Wire]) -> list[Wire]:
    return with_other_ids(without_meta(blocks))


def results(blocks: list[Wire]) -> Wire:
    return user(*[result(block["id"], text("3")) for block in blocks if block["type"] == "tool_use"])


def without_meta(blocks: list[Wire]) -> list[Wire]:
    return [{name: value for name, value in block.items() if name != "_meta"} for block in blocks]


def with_other_ids(blocks: list[Wire]) -> list[Wire]:
    return [{**block, "id": f"other{index}"} if "id" in block else block for index, block in enumerate(blocks)]


def test_the_server_gets_an_opaque_key_and_ids_and_nothing_of_the_turn() -> None:
    sent = keep(ReasoningStore())

    key = sent[2]["_meta"][META_KEY]
    assert len(bytes.fromhex(key)) == 16
    assert sent == [
        text("So:"),
        text(""),
        {
            "type": "tool_use",
            "id": f"call_{key}_0",
            "name": "add",
            "input": {"a": 1, "b": [2]},
            "_meta": {META_KEY: key},
        },
        {"type": "tool_use", "id": f"call_{key}_1", "name": "add", "input": {}, "_meta": {META_KEY: key}},
    ]


WRITTEN: dict[str, Callable[[list[Wire]], list[Wire]]] = {
    "as it was": lambda sent: [assistant(*sent)],
    "without _meta": lambda sent: [assistant(*without_meta(sent))],
    "other ids": lambda sent: [assistant(*with_other_ids(sent))],
    "without empty texts": lambda sent: [assistant(sent[0], *sent[2:])],
    "text in a message before": lambda sent: [assistant(sent[0]), assistant(*sent[2:])],
    "JSON in another order": lambda sent: [assistant({**sent[2], "input": {"b": [2], "a": 1}}, sent[0], sent[3])],
}


@pytest.mark.parametrize("back", WRITTEN.values(), ids=WRITTEN)
def test_a_turn_is_restored_however_a_server_may_write_it(back: Callable[[list[Wire]], list[Wire]]) -> None:
    store = ReasoningStore()
    messages = back(keep(store))
    blocks = [block for message in messages for block in message["content"]]

    found = restore(store, user(text()), *messages, results(blocks), user(text("go on")))

    assert (found.turns, found.lost) == ({1: TURN}, frozenset())
    asked = found.request.messages
    assert [message.role for message in asked] == ["user", "assistant", "user", "user"]
    assert [use.id for use in asked[1].tool_uses] == ["call_0", "call_1"]
    assert [block.tool_use_id for block in asked[2].content if block.type == "tool_result"] == ["call_0", "call_1"]


ALTERED = "messages[1]: it is not what the model said, and this client does not go on with an altered history"
MOVED = ALTERED.replace("it is not what the model said", "what precedes it is not what the model answered")
FORGOTTEN = (
    "messages[1]: the reasoning of its tool calls is no longer known to this client, which does not go on without it"
)


def test_an_altered_turn_is_not_restored(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, Callable[[list[Wire]], list[Wire]]]] = [
        ("text", lambda sent: [text("So!"), *sent[1:]]),
        ("no text", lambda sent: sent[1:]),
        ("more text", lambda sent: [text("More."), *sent]),
        ("input", lambda sent: [*sent[:2], {**sent[2], "input": {"a": 2, "b": [2]}}, sent[3]]),
        ("1.5 for 1", lambda sent: [*sent[:2], {**sent[2], "input": {"a": 1.5, "b": [2]}}, sent[3]]),
        ("True for 1", lambda sent: [*sent[:2], {**sent[2], "input": {"a": True, "b": [2]}}, sent[3]]),
        ("name", lambda sent: [*sent[:2], {**sent[2], "name": "sub"}, sent[3]]),
        ("fewer calls", lambda sent: sent[:3]),
        ("other order", lambda sent: [*sent[:2], sent[3], sent[2]]),
        ("more calls", lambda sent: [*sent, {"type": "tool_use", "id": "mine", "name": "add", "input": {}}]),
        ("an image", lambda sent: [*sent, {"type": "image", "data": "", "mimeType": "image/png"}]),
    ]
    for case, alter in table:
        with subtests.test(case):
            store = ReasoningStore()
            blocks = alter(keep(store))
            history = [user(text()), assistant(*blocks), results(blocks)]

            assert restore(store, *history) == Restored(request(*history), {}, frozenset({1}))
            with pytest.raises(InputRefused) as refusal:
                restore(store, *history, altered="refuse")
            assert (refusal.value.code, str(refusal.value).split(": ")[0]) == (-32602, "messages[1]")


def test_a_turn_without_calls_is_found_by_the_key_of_its_picture() -> None:
    """Where a server drops ``_meta``, nothing is found, and nothing is said to be lost."""
    store = ReasoningStore()
    sent = keep(store, [TextContent(text="Here:"), ImageContent(data="aGk=", mime_type="image/png")], turn=["drawn"])
    found, dropped = [
        restore(store, user(text()), assistant(*blocks), user(text("Blue."))) for blocks in (sent, without_meta(sent))
    ]

    assert (found.turns, found.lost) == ({1: ["drawn"]}, frozenset())
    assert (dropped.turns, dropped.lost) == ({}, frozenset())


def history(sent: list[Wire]) -> list[Wire]:
    return [user(text()), assistant(*sent), results(sent)]


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
ASKED = user(text("Add this."), IMAGE)
CALLED = assistant(use("c", a=1), use("d"))


def test_a_turn_is_restored_only_after_the_conversation_that_it_was_said_in(subtests: pytest.Subtests) -> None:
    said = [ASKED, CALLED, user(result("c", text("3")), result("d", IMAGE))]
    marks = {"_meta": {"cache": True}, "annotations": {"priority": 1}}
    turned = user(result("d", text("3")), result("c", IMAGE))
    marked = [user(text("Add "), {**text("this."), **marks}, {**IMAGE, **marks}), *said[1:]]
    table: list[tuple[str, bool, list[Wire], dict[str, Any]]] = [
        ("as it was", True, said, {}),
        ("marks for a cache", True, [*marked[:2], user(result("c", {**text("3"), **marks}), result("d", IMAGE))], {}),
        ("other ids", True, [ASKED, assistant(use("d", a=1), use("c")), turned], {}),
        ("an empty message", True, [*said, assistant(text(""))], {}),
        ("another temperature", True, said, {"temperature": 1.0, "maxTokens": 7}),
        ("a system prompt", False, said, {"systemPrompt": "Say what you thought."}),
        ("another prompt", False, [user(text("Add that."), IMAGE), *said[1:]], {}),
        ("another image", False, [user(text("Add this."), {**IMAGE, "data": "aGo="}), *said[1:]], {}),
        ("another role", False, [assistant(text("Add this."), IMAGE), *said[1:]], {}),
        ("1.0 for 1", True, [ASKED, assistant(use("c", a=1.0), use("d")), said[2]], {}),
        ("True for 1", False, [ASKED, assistant(use("c", a=True), use("d")), said[2]], {}),
        ("another result", False, [*said[:2], user(result("c", text("4")), result("d", IMAGE))], {}),
        ("results of other calls", False, [*said[:2], turned], {}),
        ("a failure", False, [*said[:2], user(result("c", text("3"), isError=True), result("d", IMAGE))], {}),
        ("fewer messages", False, said[1:], {}),
        ("more messages", False, [*said, user(text("And?"))], {}),
        ("nothing", False, [], {}),
    ]
    for case, is_restored, before, fields in table:
        with subtests.test(case):
            store = ReasoningStore()
            sent = keep(store, asked=request(*said))

            found = restore(store, *before, assistant(*sent), results(sent), **fields)

            assert (found.turns == {len(before): TURN}, found.lost == {len(before)}) == (is_restored, not is_restored)


def test_a_turn_after_messages_of_which_the_server_knows_nothing_is_restored_without_them_too() -> None:
    """It was said after a wrong call, or calls of own tools."""
    known = [ASKED, CALLED, user(result("c", text("3")), result("d", IMAGE))]
    unknown = [assistant(use("e", a=7)), user(result("e", text("a is 1 or 2"), isError=True))]
    store = ReasoningStore()
    sent = keep(store, asked=replace(request(*known, *unknown), server_messages=len(known)))

    for before, is_restored in (
        (known, True),
        ([*known, *unknown], True),
        (known[:1], False),
        ([*known, unknown[0]], False),
    ):
        found = restore(store, *before, assistant(*sent), results(sent))
        assert found.turns == ({len(before): TURN} if is_restored else {})


@pytest.mark.parametrize("altered", ["continue", "refuse"])
def test_the_log_says_once_for_each_turn_why_it_cannot_be_restored_and_a_refusal_what_that_means(
    altered: AlteredHistory, caplog: pytest.LogCaptureFixture
) -> None:
    store, unknown = ReasoningStore(), {"unknown_caller": True}
    table: list[tuple[list[Wire], dict[str, Any], str]] = [
        (keep(store)[1:], {}, ALTERED),
        (keep(store), {"session": object()}, FORGOTTEN),
        (keep(ReasoningStore()), {}, FORGOTTEN),
        (keep(store), {"systemPrompt": "?"}, MOVED),
        (keep(store), unknown, FORGOTTEN),
        (keep(store), unknown, FORGOTTEN),  # it is so for all turns of the connection
    ]

    for _ in range(2):
        for blocks, fields, told in table:
            with nullcontext() if altered == "continue" else pytest.raises(InputRefused, match=f"^{re.escape(told)}$"):
                restore(store, *history(blocks), altered=altered, **fields)

    begin = "sampling for calculator: the reasoning of an earlier turn cannot be restored for anthropic:claude: "
    assert caplog.messages == [
        f"{begin}the server has changed it, or the names of its tools",
        f"{begin}it was made for another connection, server, caller or model",
        f"{begin}it is forgotten, or was made by another model",
        f"{begin}the server has changed the system prompt, or the messages before it",
        f"{begin}it is not known which caller the request is for; ReasoningStore(one_user=True) keeps it if you have one user",
    ]


def test_a_server_that_makes_up_keys_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    store = ReasoningStore()

    for request_number in range(3):
        turns = [keep(ReasoningStore()) for _ in range(MAX_TURNS // 2 + 1)]
        restore(store, user(text()), *[message for turn in turns for message in (assistant(*turn), results(turn))])
        assert len(caplog.messages) == request_number + 1


def test_a_picture_that_the_model_made_belongs_to_its_turn() -> None:
    store = ReasoningStore()
    sent = keep(store, [ImageContent(data="aGk=", mime_type="image/png"), call()])
    apart = [user(text()), assistant(sent[0]), assistant(sent[1]), results(sent)]
    other = [user(text()), assistant({**sent[0], "data": "aGo="}, sent[1]), results(sent)]

    assert restore(store, *apart).turns == {1: TURN}
    assert restore(store, *other).lost == {1}


def test_the_last_answer_of_a_turn_before_does_not_hide_the_next() -> None:
    store, before = ReasoningStore(), [user(text()), assistant(text("Welcome."))]
    sent = keep(store, asked=request(*before))

    found = restore(store, *before, assistant(*sent), results(sent))

    assert (found.turns, len(found.request.messages)) == ({2: TURN}, 4)


def test_a_message_that_has_calls_of_two_turns_is_altered() -> None:
    store = ReasoningStore()
    both = [*keep(store, [call()]), *keep(store, [call()])]

    assert restore(store, *history(both)).lost == {1}


def test_a_turn_is_restored_once_in_a_request() -> None:
    store = ReasoningStore()
    sent = keep(store)
    copies = [with_other_ids(sent) for _ in range(3)]
    for number, copy in enumerate(copies):
        copy[2]["id"] = f"copy{number}"
    repeated = [*history(sent), *(message for copy in copies for message in history(copy)[1:])]

    found = restore(store, *repeated)

    assert (found.turns, found.lost) == ({1: TURN}, frozenset({3, 5, 7}))
    with pytest.raises(InputRefused) as refusal:
        restore(store, *repeated, altered="refuse")
    assert str(refusal.value) == ALTERED.replace("messages[1]", "messages[3]")
    assert restore(store, *history(sent)).turns == {1: TURN}  # in the next request again


@pytest.mark.parametrize("limit", [{"max_turns": 8}, {"max_bytes": 8 * 2000}], ids=["turns", "bytes"])
def test_one_connection_fills_a_quarter_of_the_store_and_leaves_the_turns_of_others(limit: dict[str, Any]) -> None:
    store = ReasoningStore(**limit)
    quiet, loud = object(), object()
    first = keep(store, turn=LONG, asked=request(session=quiet))

    sent = [keep(store, turn=LONG, asked=request(session=loud)) for _ in range(20)]

    assert restore(store, *history(first), session=quiet).turns == {1: LONG}
    assert [bool(restore(store, *history(one), session=loud).turns) for one in sent] == [False] * 18 + [True] * 2


def test_a_turn_that_is_larger_than_a_share_is_kept_alone() -> None:
    store, session = ReasoningStore(max_bytes=4000), object()
    sent = [keep(store, turn=LONG, asked=request(session=session)) for _ in range(2)]

    assert [restore(store, *history(one), session=session).turns for one in sent] == [{}, {1: LONG}]


def test_the_size_of_a_turn_is_in_bytes() -> None:
    store = ReasoningStore(max_bytes=2500)
    said: list[AssistantContentBlock] = [TextContent(text="日" * 500), call()]  # 1,500 bytes

    sent = [keep(store, said) for _ in range(2)]

    assert [restore(store, *history(one)).turns for one in sent] == [{}, {1: TURN}]


ALICE, BOB = object(), object()


def outer(caller: object = ALICE) -> OuterCall:
    return OuterCall("tools/call", "t", 1, call_id=1, caller=caller)


def test_a_turn_works_only_for_the_connection_the_server_the_caller_and_the_model_that_it_was_made_for(
    subtests: pytest.Subtests,
) -> None:
    """Where the caller is not known, it is kept for none, or by choice for the connection."""
    same: dict[str, Any] = {"outer": outer(), "session": object()}
    later, bob, none = {"outer": replace(same["outer"], request_id=2)}, {"outer": outer(BOB)}, {"outer": None}
    unknown, host = {**none, "unknown_caller": True}, {**none, "session": None}
    table: list[tuple[str, bool, bool | None, dict[str, Any], dict[str, Any]]] = [
        ("the same", True, None, {}, later),
        ("server", False, None, {}, {"server": "another"}),
        ("model", False, None, {}, {"owner": ("anthropic", "another")}),
        ("provider", False, None, {}, {"owner": ("gemini", "claude")}),
        ("caller", False, None, {}, bob),
        ("an equal name of the caller", True, None, {"outer": outer("ann")}, {"outer": outer("".join(["an", "n"]))}),
        ("a number that is equal", False, None, {"outer": outer(1)}, {"outer": outer(True)}),
        ("no caller", False, None, {}, {"outer": outer(None)}),
        ("no call", False, None, {}, none),
        ("no call when it was made", False, None, none, {}),
        ("connection", False, None, {}, {"session": object()}),
        ("no connection", False, None, {}, {"session": None}),
        ("no call has a caller", True, None, none, none),
        ("calls have callers", False, None, unknown, unknown),
        ("they had none when it was made", False, None, none, unknown),
        ("known when it was made", False, None, {}, unknown),
        ("known later", False, None, unknown, {}),
        ("several users, by choice", False, False, none, none),
        ("several users, both calls known", True, False, {}, later),
        ("several users, a loop of the host", True, False, host, host),
        ("one user, by choice", True, True, unknown, unknown),
        ("one user, other callers", True, True, {}, bob),
    ]
    for case, is_restored, one_user, made, asked in table:
        with subtests.test(case):
            store = ReasoningStore(one_user=one_user)
            sent = keep(store, asked=request(**{**same, **made}))
            assert sent[2]["_meta"]

            found = restore(store, *history(sent), **{**same, **asked})

            assert (found.turns == {1: TURN}, found.lost == {1}) == (is_restored, not is_restored)
            assert len(restore(store, *history(sent), **{**same, **made}).turns) == len(store)
    with pytest.raises(TypeError, match=r"^one_user is True, False or None, not int$"):
        ReasoningStore(one_user=1)  # type: ignore[arg-type]


def test_a_turn_whose_tool_has_another_name_now_is_not_restored() -> None:
    store = ReasoningStore()
    asked = request(tools=[{"name": "a/b", "inputSchema": {}}])
    sent = keep(store, [call(name="a/b")], asked=asked)
    now = [{"name": "a_b", "inputSchema": {}}, {"name": "a/b", "inputSchema": {}}]

    assert restore(store, *history(sent), tools=now).lost == {1}


@pytest.mark.parametrize("altered", ["continue", "refuse"])
def test_a_call_that_its_api_does_not_take_back_costs_the_reasoning_of_its_turn_and_is_no_change_of_the_history(
    altered: AlteredHistory, caplog: pytest.LogCaptureFixture
) -> None:
    store = ReasoningStore()
    taken, made_up = (keep(store, [call(name=name)]) for name in ("subtract", "add()"))
    unreadable = keep(store, [call()], turn=None)

    assert restore(store, *history(taken), altered=altered).turns == {1: TURN}
    assert restore(store, *history(made_up), altered=altered).lost == {1}
    assert restore(store, *history(unreadable), altered=altered).lost == {1}
    assert restore(store, *history(without_key(unreadable)), altered=altered) == Restored(
        request(*history(without_key(unreadable)))
    )
    said = "sampling for calculator: the reasoning of an earlier turn cannot be restored for anthropic:claude: "
    assert caplog.messages == [f"{said}the model called a tool in a way that its API does not take"] * 2
    if altered == "refuse":
        with pytest.raises(InputRefused, match=re.escape(MOVED)):
            restore(store, *history(made_up), altered=altered, systemPrompt="?")


def test_a_turn_is_forgotten_with_its_call() -> None:
    store, first, second = ReasoningStore(), outer(), outer()
    keep(store, asked=request(outer=first))
    sent = keep(store, asked=request(outer=second))
    assert len(store) == 2

    del first
    gc.collect()

    assert repr(store) == "<ReasoningStore: 1 turns>"
    assert restore(store, *history(sent), outer=second).turns == {1: TURN}


def test_a_turn_is_forgotten_when_it_was_not_used_for_too_long() -> None:
    now = 0.0
    store = ReasoningStore(max_age=60, clock=lambda: now)
    used, unused = keep(store), keep(store)

    now = 50
    assert restore(store, *history(used)).turns
    now = 100

    assert restore(store, *history(unused)).lost == {1}
    assert restore(store, *history(used)).turns
    assert len(store) == 1


@pytest.mark.parametrize("limit", [{"max_turns": 2}, {"max_bytes": 2 * 2000}], ids=["turns", "bytes"])
def test_the_least_recently_used_turn_is_forgotten_first(limit: dict[str, Any]) -> None:
    store = ReasoningStore(**limit)
    first, second = keep(store, turn=LONG), keep(store, turn=LONG)
    assert restore(store, *history(first)).turns == {1: LONG}

    third = keep(store, turn=LONG)

    assert [restore(store, *history(sent)).turns for sent in (first, second, third)] == [{1: LONG}, {}, {1: LONG}]


def test_what_ended_calls_had_kept_no_longer_counts() -> None:
    store = ReasoningStore(max_bytes=4000)
    for _ in range(10):
        keep(store, turn=LONG, asked=request(outer=outer()))  # the call ends at once
    gc.collect()

    kept = [keep(store, turn=LONG), keep(store, turn=LONG)]

    assert [restore(store, *history(sent)).turns for sent in kept] == [{1: LONG}, {1: LONG}]


def test_a_turn_with_half_of_a_character_is_kept() -> None:
    store = ReasoningStore()
    turn = [{"type": "thinking", "thinking": "\ud83d"}]

    assert restore(store, *history(keep(store, turn=turn))).turns == {1: [{"type": "thinking", "thinking": "\ufffd"}]}


def test_a_conversation_without_reasoning_is_returned_as_it_is() -> None:
    asked = request(*history([use("call_0")]))
    same: dict[str, Any] = {"conversation": Conversation(asked), "names": names_of(asked, AnthropicModel.name_rule)}

    assert ReasoningStore().restore(asked, belongs_to=OWNER, altered="refuse", **same).request is asked


# Two loops at once


@dataclass
class Loop:
    """A loop of a server, which keeps or drops ``_meta``. Its model says the same in every turn, but thinks something else."""

    number: int
    drops_meta: bool
    outer: OuterCall | None
    messages: list[Wire] = field(default_factory=lambda: [user(text())])
    said: dict[int, object] = field(default_factory=dict)
    """The turns, by the index of their message."""

    def turn(self, store: ReasoningStore) -> None:
        found = restore(store, *self.messages, outer=self.outer)
        assert found.turns.items() <= self.said.items()  # turns of this loop, each in its place
        assert found.turns.keys() | found.lost == self.said.keys()
        turn = [{"type": "thinking", "loop": self.number, "index": len(self.messages)}]
        sent = keep(store, [call("call_0")], turn=turn, asked=request(*self.messages, outer=self.outer))
        self.said[len(self.messages)] = turn
        blocks = without_meta(sent) if self.drops_meta else sent
        self.messages += [assistant(*blocks), results(blocks)]


STEPS = st.lists(st.sampled_from(["first", "second", "forget", "wait", "end"]), max_size=30)


@settings(max_examples=2000 if THOROUGH else 100, deadline=None)
@given(STEPS, st.booleans(), st.booleans(), st.integers(1, 6))
def test_a_turn_is_never_restored_into_another_loop(steps: list[str], drops: bool, knows: bool, max_turns: int) -> None:
    now = 0.0
    store = ReasoningStore(max_turns=max_turns, max_age=10, clock=lambda: now)
    loops = [Loop(number, drops, outer(None) if knows else None) for number in range(2)]
    for step in steps:
        match step:
            case "first":
                loops[0].turn(store)
            case "second":
                loops[1].turn(store)
            case "forget":
                keep(store, [call("call_0")])
            case "wait":
                now += 4
            case "end":  # and the next loop has the history of the one before: nothing of it is known any more
                loops[0].outer = outer(None) if knows else None
                gc.collect(0)
    for loop in loops:
        loop.turn(store)


def test_calls_that_come_back_without_their_key_are_refused_by_choice() -> None:
    store = ReasoningStore()
    sent = without_key(keep(store))
    again = keep(store, [call(a=2)])

    assert restore(store, *history(sent)).turns == {}
    with pytest.raises(InputRefused, match=r"^messages\[1\]: its tool calls have lost the key to their reasoning"):
        restore(store, *history(sent), altered="refuse")
    with pytest.raises(InputRefused, match=r"^messages\[0\]: its tool calls have lost the key"):
        restore(store, assistant(*sent), results(sent), assistant(*again), results(again), altered="refuse")


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        (keep(ReasoningStore(), [call(a=3)]), {}),
        (keep(ReasoningStore()), {"server": "other"}),
        (keep(ReasoningStore()), {"session": object()}),
        (keep(ReasoningStore()), {"owner": ("anthropic", "haiku")}),
    ],
    ids=["other arguments", "another server", "another connection", "another model"],
)
def test_calls_without_a_key_that_this_client_kept_no_reasoning_of_are_not_refused(
    sent: list[Wire], asked: dict[str, Any]
) -> None:
    store = ReasoningStore()
    keep(store)
    unmarked = without_key(sent)

    restored = restore(store, assistant(*unmarked), results(unmarked), altered="refuse", **asked)

    assert restored.turns == {}


def test_equal_calls_that_were_made_without_reasoning_may_stand_beside_those_with_it() -> None:
    store = ReasoningStore()
    sent = keep(store)
    plain = without_key(sent)

    restored = restore(store, *history(sent), assistant(*plain), results(plain), altered="refuse")

    assert restored.turns == {1: TURN}
