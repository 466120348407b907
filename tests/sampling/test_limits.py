"""The limits of sampling, and the messages of refusals."""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import fields

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_host.errors import ProtocolError
from mcp_host.sampling import SamplingLimits
from mcp_host.sampling.limits import LimitExceeded
from mcp_host.sampling.validation import check_counts, check_sizes, read_params
from mcp_host.types import CreateMessageRequestParams
from tests.sampling.asking import ADD, Wire, assistant, result, text, use, user, wire


def check(params: Wire, limits: SamplingLimits) -> None:
    check_counts(params, limits)
    check_sizes(CreateMessageRequestParams.from_wire(params), limits)


def base64_of(size: int) -> str:
    return base64.b64encode(b"x" * size).decode()


def image(size: int) -> Wire:
    return {"type": "image", "data": base64_of(size), "mimeType": "image/png"}


def audio(size: int) -> Wire:
    return {"type": "audio", "data": base64_of(size), "mimeType": "audio/wav"}


def file(size: int) -> Wire:
    return {"type": "resource", "resource": {"uri": "file:///a", "blob": base64_of(size)}}


def page(words: str) -> Wire:
    return {"type": "resource", "resource": {"uri": "file:///a", "text": words}}


LINK: Wire = {"type": "resource_link", "name": "a", "uri": "file:///a"}  # 53 bytes as JSON


def tool(name: str, **more: object) -> Wire:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


EXACT: dict[str, tuple[str, int, Wire]] = {
    "messages": ("messages", 2, wire(user(text()), user(text()))),
    "tools": ("tools", 2, wire(tools=[ADD, tool("b")])),
    "the name of the second tool": ("tool_name", 3, wire(tools=[tool("b"), ADD])),
    "the definition of a tool": ("tool_definition", 46, wire(tools=[tool("a" * 3)])),
    "the second of two tools": ("tool_definition", 63, wire(tools=[ADD, tool("b", description="é")])),
    "blocks": ("blocks", 3, wire(user(text(), text()), {"role": "user", "content": text()})),
    "blocks inside of results": ("blocks", 4, wire(assistant(use("1")), user(result("1", text(), text())))),
    "text": ("text", 5, wire(user(text("ab"), text("abc")))),
    "text that is not ASCII": ("text", 6, wire(user(text("é€a")))),
    "a lone surrogate, which would be three bytes if UTF-8 had it": ("text", 3, wire(user(text("\ud800")))),
    "the system prompt": ("text", 5, wire(user(text("a")), systemPrompt="abcd")),
    "stop sequences": ("text", 5, wire(user(text("a")), stopSequences=["ab", "cd"])),
    "metadata": ("text", 8, wire(user(text("a")), metadata={"a": 1})),
    "the input of a tool": ("text", 7, wire(assistant(use("1", a=1)))),
    "the result of a tool": ("text", 3, wire(user(result("1", text("abc"))))),
    "structured content": ("text", 8, wire(user(result("1", text("a"), structuredContent={"a": 1})))),
    "a file that is text": ("text", 3, wire(user(result("1", page("abc"))))),
    "a link": ("text", 53, wire(user(result("1", LINK)))),
    "images and sound": ("binary", 6, wire(user(image(1), audio(2), image(3)))),
    "binary results of tools": ("binary", 6, wire(user(result("1", image(2), file(4))))),
}
WHERE = {
    "the name of the second tool": r"tools\[1\]: ",
    "the definition of a tool": r"tools\[0\]: ",
    "the second of two tools": r"tools\[1\]: ",
}


@pytest.mark.fault("S10", "S11")
def test_a_limit_is_exact_to_the_item_or_byte(subtests: pytest.Subtests) -> None:
    """A refusal names the tool that exceeds it."""
    for case, (name, size, params) in EXACT.items():
        with subtests.test(case):
            check(params, SamplingLimits(**{name: size}))

            problem = f"this client's limit {name} is {size - 1}, and the request has {size}: its host can raise it with SamplingLimits({name}=...)"
            with pytest.raises(LimitExceeded, match=f"^{WHERE.get(case, '')}{re.escape(problem)}$"):
                check(params, SamplingLimits(**{name: size - 1}))


def test_what_would_take_long_to_read_is_limited_wherever_it_stands(subtests: pytest.Subtests) -> None:
    """`wire` has eight values, the rest four, and those of schemas, inputs and metadata do not count."""
    four: list[Wire] = [
        {"modelPreferences": {"hints": [{}, {}]}},
        {"stopSequences": ["a", "b", "c"]},
        {"metadata": {"a": 1, "b": [1, 2, 3]}, "a": 1, "b": 2, "c": 3},
    ]
    for more in four:
        with subtests.test(more=more):
            check_counts(wire(user(text()), **more), SamplingLimits(values=12))
            with pytest.raises(LimitExceeded, match=r"^this client's limit values is 11, and the request has more: "):
                check_counts(wire(user(text()), **more), SamplingLimits(values=11))


def test_wrong_shapes_are_left_to_the_parser(subtests: pytest.Subtests) -> None:
    shapes: list[tuple[Wire, SamplingLimits]] = [
        ({"messages": "no list", "tools": {}}, SamplingLimits(messages=1, tools=0)),
        ({"messages": [1, {"content": "text"}, {}, user()]}, SamplingLimits()),
    ]
    for wrong, limits in shapes:
        with subtests.test(wrong=wrong), pytest.raises(ProtocolError, match=r"^malformed CreateMessageRequestParams: "):
            check(wire() | wrong, limits)


@pytest.mark.fault("S14")
def test_max_tokens_out_of_range_is_refused(subtests: pytest.Subtests) -> None:
    """The largest is the largest integer that every JSON parser keeps."""
    for tokens in (1, 2**53 - 1):
        check({**wire(), "maxTokens": tokens}, SamplingLimits())

    for case, wrong in {"0": 0, "-1": -1, "-huge": -(10**5000), "2**53": 2**53, "huge": 10**5000}.items():
        with (
            subtests.test(case),
            pytest.raises(ProtocolError, match=r"^maxTokens: must be from 1 to 9007199254740991$"),
        ):
            check({**wire(), "maxTokens": wrong}, SamplingLimits())


def test_a_request_that_cannot_be_written_as_json_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(300):
        deep = {"a": deep}

    with pytest.raises(ProtocolError, match=r"^the request holds something that cannot be written as JSON$"):
        check(wire(metadata=deep), SamplingLimits())


@pytest.mark.fault("S14")
@pytest.mark.parametrize(
    ("cap", "granted"), [(None, 100), (1000, 100), (100, 100), (10, 10)], ids=["no cap", "above", "equal", "below"]
)
def test_max_tokens_is_lowered_to_the_limit(cap: int | None, granted: int) -> None:
    read = read_params(wire(systemPrompt="s"), "with_tools", SamplingLimits(max_tokens=cap))

    assert read == CreateMessageRequestParams.from_wire({**wire(systemPrompt="s"), "maxTokens": granted})


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert SamplingLimits() == SamplingLimits(
        tools=64,
        tool_name=128,
        tool_definition=65_536,
        tool_calls=32,
        messages=256,
        blocks=4096,
        values=30_000,
        text=1_048_576,
        binary=8_388_608,
        max_tokens=None,
        at_once_per_server=4,
        at_once=16,
        waiting=64,
        seconds=600,
    )


SMALLEST: dict[str, int] = {
    **dict.fromkeys(("tools", "tool_calls", "binary", "waiting", "seconds"), 0),
    **dict.fromkeys(("tool_name", "tool_definition", "messages", "blocks", "values", "text", "max_tokens"), 1),
    **dict.fromkeys(("at_once_per_server", "at_once"), 1),
}


def test_each_limit_has_a_minimum_and_is_not_nan(subtests: pytest.Subtests) -> None:
    for name in [field.name for field in fields(SamplingLimits)]:
        with subtests.test(name=name):
            least = SMALLEST[name]

            assert getattr(SamplingLimits(**{name: least}), name) == least
            with pytest.raises(ValueError, match=f"^SamplingLimits.{name} must be at least {least}, not {least - 1}$"):
                SamplingLimits(**{name: least - 1})
            with pytest.raises(ValueError, match=f"^SamplingLimits.{name} must be at least {least}, not nan$"):
                SamplingLimits(**{name: math.nan})  # type: ignore[arg-type]  # most are integers


def test_seconds_and_max_tokens_can_be_unlimited() -> None:
    assert SamplingLimits(seconds=math.inf, max_tokens=None) == SamplingLimits(seconds=math.inf)
    assert SamplingLimits(seconds=math.inf).seconds == math.inf


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)  # half a character is no JSON text
NUMBERS = st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=6,
)

OBJECTS = st.dictionaries(WORDS, VALUES, max_size=3)


@given(metadata=OBJECTS, words=WORDS, properties=OBJECTS)
@settings(max_examples=50)
@example(metadata={"a": [1e15] * 50}, words="", properties={"b": [1e15] * 50})
def test_requests_small_enough_to_skip_the_checks_are_within_every_limit(
    metadata: dict[str, object], words: str, properties: dict[str, object]
) -> None:
    """Even if we would write the same JSON longer than the server did."""
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": properties}}
    params = wire(user(text(words)), metadata=metadata, tools=[tool])
    raw = json.dumps(params, ensure_ascii=False, separators=(",", ":")).replace("1000000000000000.0", "1e15")
    read = json.loads(raw)
    size = len(raw.encode())

    check_counts(read, SamplingLimits(tool_definition=5 * size))
    check_sizes(CreateMessageRequestParams.from_wire(read), SamplingLimits(text=5 * size, binary=5 * size))


@given(words=WORDS, messages=st.integers(1, 5), blocks=st.integers(1, 5))
@settings(max_examples=50)
@example(words="", messages=5, blocks=5)
def test_requests_too_small_for_so_many_blocks_are_within_the_limit(words: str, messages: int, blocks: int) -> None:
    params = wire(*[user(*[text(words)] * blocks)] * messages)
    size = len(json.dumps(params, ensure_ascii=False, separators=(",", ":")).encode())

    check_counts(params, SamplingLimits(blocks=size // 25))


def test_small_requests_skip_what_they_cannot_exceed() -> None:
    read = wire(user(text("x" * 21), text()), tools=[ADD])
    params = CreateMessageRequestParams.from_wire(read)
    limits = SamplingLimits(text=20, tool_definition=20, blocks=1)

    check_counts(read, limits, size=4)  # as a caller would never say
    check_sizes(params, limits, size=4)
    with pytest.raises(LimitExceeded, match="limit blocks is 1, and the request has 2"):
        check_counts(read, limits, size=26)
    with pytest.raises(LimitExceeded, match="limit tool_definition is 20, and the request has"):
        check_counts(read, SamplingLimits(tool_definition=20), size=5)
    with pytest.raises(LimitExceeded, match="limit text is 20, and the request has 26"):
        check_sizes(params, limits, size=5)


def test_a_request_that_could_exceed_a_limit_in_bytes_is_measured() -> None:
    """The limit of a tool, a sixteenth of the text's, causes no measuring of the text."""
    picture = CreateMessageRequestParams.from_wire(wire(user(image(21))))
    words = CreateMessageRequestParams.from_wire(wire(user(text("x" * 21))))

    for params, limits, problem in (
        (picture, SamplingLimits(binary=20), "limit binary is 20, and the request has 21"),
        (words, SamplingLimits(text=20, tool_definition=4), "limit text is 20"),
    ):
        check_sizes(params, limits, size=4)
        with pytest.raises(LimitExceeded, match=problem):
            check_sizes(params, limits, size=5)
