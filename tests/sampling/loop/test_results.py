"""What the model gets of a tool's result: nothing twice, and not too much."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from mcp_host.sampling.loop import results
from mcp_host.sampling.loop.results import for_model, head_and_tail
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ReceivedContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)
from mcp_host.types.content import as_text
from tests.extent import saturated

USE = ToolUseContent(id="1", name="search", input={})
MiB = 1024 * 1024


def text(words: str) -> TextContent:
    return TextContent(text=words)


def image(size: int) -> ImageContent:
    return ImageContent(data="A" * (size // 3 * 4), mime_type="image/png")


def result(*content: ReceivedContent | str, **fields: Any) -> CallToolResult:
    return CallToolResult(content=[text(block) if isinstance(block, str) else block for block in content], **fields)


def shown(given: CallToolResult, max_bytes: int = 65_536) -> ToolResultContent:
    """What the model gets of it."""
    return for_model(USE, given, max_bytes=max_bytes, cut=head_and_tail)


# Nothing twice

ROWS = {"rows": [{"id": 1, "name": "é"}]}
MANY = {"rows": [ROWS, "a b"] * 4000}

REPEATED: dict[str, CallToolResult] = {
    "an object": result(json.dumps(ROWS), structured_content=ROWS),
    "indented": result(json.dumps(ROWS, indent=2, ensure_ascii=False), structured_content=ROWS),
    "a number": result("3", structured_content={"result": 3}),
    "a text": result("sunny", structured_content={"result": "sunny"}),
    "a text as JSON": result('"sunny"', structured_content={"result": "sunny"}),
    "a list": result("[1, 2]", structured_content={"result": [1, 2]}),
    "a text for each item": result("1", "two", structured_content={"result": [1, "two"]}),
    "a bare list": result("[1, 2]", structured_content=[1, 2]),
    "a text for each item of it": result("1", "2", structured_content=[1, 2]),
    "numbers as texts": result("1", "2", structured_content=["1", 2]),
    "null": result("null", structured_content={"result": None}),
    "long": result(json.dumps(MANY, indent=2, ensure_ascii=False), structured_content=MANY),
    "a long text for each item": result("a" * 70_000, "[]", structured_content={"result": ["a" * 70_000, []]}),
    "with an image": result(json.dumps(ROWS), image(3), structured_content=ROWS),
}


def test_structured_content_that_the_text_repeats_is_paid_once(subtests: pytest.Subtests) -> None:
    for case, whole in REPEATED.items():
        with subtests.test(case):
            assert shown(whole, MiB) == ToolResultContent.of(USE, CallToolResult(content=whole.content))


DIFFERENT: dict[str, CallToolResult] = {
    "a summary": result("2 rows were found", structured_content=ROWS),
    "another value": result("3", structured_content={"result": 4}),
    "more than that": result("3", structured_content={"result": 3, "more": True}),
    "a part": result("1", structured_content={"result": [1, 2]}),
    "another value in a long text": result(json.dumps(MANY), structured_content={"rows": MANY["rows"][1:]}),
    "no JSON": result("{", structured_content=ROWS),
    "an image and nothing else": result(image(3), structured_content={"result": []}),
}


def test_structured_content_that_says_something_else_is_kept(subtests: pytest.Subtests) -> None:
    for case, whole in DIFFERENT.items():
        with subtests.test(case):
            assert shown(whole, MiB) == ToolResultContent.of(USE, whole)


def test_a_text_is_read_once_to_compare_it_and_a_long_one_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a million empty lists, in whatever step of the event loop compares it."""
    read: list[str] = []

    def reading(text: str) -> object:
        read.append(text)
        return from_json(text)

    monkeypatch.setattr(results, "from_json", reading)
    long = f"[{'[],' * 30_000}[]]"

    for texts, count in ((["[[]]"], 1), (["1", "[]"], 2), ([long], 0), ([long[:60_000], long[:6000]], 0)):
        assert not results.texts_repeat(texts, {"result": [["a"], []]})
        assert len(read) == count
        read.clear()


@pytest.mark.parametrize("depth", [1, 600])
def test_structured_content_without_content_is_text(depth: int) -> None:
    structured: dict[str, Any] = {"half of a pair": "\ud800"} if depth == 1 else {}
    for _ in range(depth):
        structured = {"a": structured}

    [block] = shown(CallToolResult(content=[], structured_content=structured)).content
    assert isinstance(block, TextContent)
    assert json.loads(block.text) == structured


def test_a_failure_stays_one() -> None:
    assert shown(result("no", is_error=True, structured_content={"result": "no"})) == ToolResultContent(
        tool_use_id="1", content=[text("no")], is_error=True
    )


# Not too much


def test_a_small_result_is_not_copied() -> None:
    small = result("hello", image(3), structured_content={"a": 1})

    assert head_and_tail(small, 100) is small


def test_a_long_text_keeps_its_head_and_its_tail_and_says_what_is_left_out() -> None:
    cut = head_and_tail(result("a" * 5000 + "z" * 5000), 242)

    assert cut == result("a" * 100 + "\n[9800 of 10000 bytes are left out here]\n" + "z" * 100)


def test_the_text_of_each_block_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have megabytes, and each time takes as long as reading it."""
    written: list[ReceivedContent] = []

    def text_of(block: ReceivedContent) -> str:
        written.append(block)
        return as_text(block)

    monkeypatch.setattr(results, "block_text", text_of)
    long = result("a" * 1000, "b" * 1000, structured_content={"c": "d"})

    head_and_tail(long, 300)

    assert written == [*long.content, text('{"c":"d"}')]


def test_no_character_is_cut_in_half() -> None:
    cut = head_and_tail(result("é" * 5000), 247).text

    head, note, tail = cut.split("\n")
    assert (set(head), set(tail)) == ({"é"}, {"é"})
    assert note == f"[{10_000 - 2 * len(head) - 2 * len(tail)} of 10000 bytes are left out here]"


def test_several_blocks_are_cut_as_one_text() -> None:
    link = ResourceLink(name="more", uri="file:///more")
    page = EmbeddedResource(resource=TextResourceContents(uri="file:///page", text="p" * 5000))

    cut = head_and_tail(result("first", "a" * 5000, link, page, "last"), 1000)

    assert [type(block) for block in cut.content] == [TextContent, TextContent, EmbeddedResource, TextContent]
    assert cut.content[0] == text("first")
    assert cut.content[-1] == text("last")
    [_, middle, end, _] = cut.content
    assert isinstance(middle, TextContent)
    assert re.fullmatch(r"a+\n\[\d+ of \d+ bytes are left out here\]", middle.text)
    assert isinstance(end, EmbeddedResource)
    assert isinstance(end.resource, TextResourceContents)
    assert re.fullmatch("p+", end.resource.text)


def test_links_where_it_is_cut_are_left_out() -> None:
    link = ResourceLink(name="more", uri="file:///more")

    cut = head_and_tail(result("a" * 100, link, "b" * 5000, link, "z" * 100), 286)

    first, *_, last = cut.content
    assert (first, last) == (text("a" * 100), text("z" * 100))
    assert not any(isinstance(block, ResourceLink) for block in cut.content)


def test_structured_content_that_makes_it_too_long_becomes_the_end_of_the_text() -> None:
    cut = head_and_tail(result("2,000 numbers", structured_content={"numbers": list(range(2000))}), 500)

    assert cut.structured_content is None
    assert cut.text.startswith('2,000 numbers\n{"numbers":[0,1,2,')
    assert cut.text.endswith(",1998,1999]}")


def test_images_are_kept_wherever_the_text_is_cut() -> None:
    cut = head_and_tail(result("a" * 1000, image(3000), "z" * 1000), 200)

    assert [type(block) for block in cut.content] == [TextContent, ImageContent, TextContent]


def test_files_that_are_too_large_are_replaced_by_a_note() -> None:
    sound = AudioContent(data="A" * 8, mime_type="audio/wav")
    blob = EmbeddedResource(resource=BlobResourceContents(uri="file:///a.zip", blob="A" * (8 * MiB)))

    cut = head_and_tail(result(image(3 * MiB), image(3 * MiB), blob, sound), 1000)

    assert cut == result(
        image(3 * MiB), "[image/png: 3145728 bytes are left out]", "[file:///a.zip: 6291456 bytes are left out]", sound
    )


def test_a_block_of_an_unknown_type_is_a_line_of_text() -> None:
    assert shown(result(UnknownContent(type="hologram"))).text == "[hologram, which this version does not know]"


def test_a_million_empty_blocks_are_too_much() -> None:
    cut = head_and_tail(result(*[""] * 10_000), 1000)

    assert len(cut.content) < 50


def test_the_policy_can_be_replaced() -> None:
    def first_line(given: CallToolResult, max_bytes: int) -> CallToolResult:
        return result(given.text.splitlines()[0][:max_bytes])

    assert for_model(USE, result("one\ntwo"), max_bytes=2, cut=first_line).text == "on"


BLOCKS = st.one_of(
    st.text(max_size=200).map(text),
    st.integers(0, 50).map(lambda size: image(size * 3)),
    st.text(max_size=50).map(lambda uri: ResourceLink(name="link", uri=uri)),
    st.text(max_size=200).map(lambda words: EmbeddedResource(resource=TextResourceContents(uri="a:b", text=words))),
    st.text(min_size=1, max_size=20).map(lambda kind: UnknownContent(type=f"x-{kind}")),
)


@saturated
@given(blocks=st.lists(BLOCKS, max_size=12), max_bytes=st.integers(1, 2000))
def test_any_result_is_within_its_bound_and_begins_and_ends_as_it_did(
    blocks: list[ReceivedContent], max_bytes: int
) -> None:
    """The bound is at least that of the note, which no cut can do without."""
    cut = head_and_tail(CallToolResult(content=blocks), max_bytes).content

    texts = [block for block in cut if not isinstance(block, ImageContent)]
    size = sum(len(words(block).encode("utf-8", "surrogatepass")) for block in texts)
    assert size <= max(max_bytes, 60) or cut == blocks
    assert [block for block in cut if isinstance(block, ImageContent)] == [
        block for block in blocks if isinstance(block, ImageContent)
    ]
    if cut == blocks:
        return
    before = "".join(words(block) for block in blocks if not isinstance(block, ImageContent))
    after = "".join(map(words, texts))
    [note] = re.findall(r"\n?\[\d+ of \d+ bytes are left out here\]\n?", after)
    head, _, tail = after.partition(note)
    assert before.startswith(head)
    assert before.endswith(tail)


def words(block: ReceivedContent) -> str:
    """What the model reads of a block that is no image."""
    match block:
        case TextContent(text=words) | EmbeddedResource(resource=TextResourceContents(text=words)):
            return words
        case ResourceLink():
            return json.dumps(block.to_wire(), ensure_ascii=False, separators=(",", ":"))
    return f"[{block.type}, which this version does not know]"
