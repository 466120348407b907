"""What a person sees of a request: enough to decide, and no terminal escapes."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_host.sampling import OuterCall, SamplingRequest
from mcp_host.sampling.display import Seen, SeenBefore, describe, digests_of
from mcp_host.terminal.text import Layout
from tests.sampling.asking import ADD, MULTIPLY, Wire, assistant, request, result, text, use, user
from tests.terminal.test_text import calls_in


def resource(uri: str, **more: object) -> Wire:
    return {"type": "resource", "resource": {"uri": uri, **more}}


def shown(asked: SamplingRequest, columns: int = 80, *, seen: Seen | None = None, whole: bool = False) -> str:
    rows = describe(asked, Layout(columns), seen=seen or Seen(), whole=whole)
    return "\n".join([row for row in rows if row is not None])


def test_a_request_is_shown_from_the_asking_server_to_the_last_message() -> None:
    asked = request(
        user(text("What is 1+2?"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}),
        assistant(text("I will add."), use("1", a=1, b=2)),
        user(
            result(
                "1",
                text("3"),
                {"type": "resource_link", "name": "log", "uri": "file:///log"},
                resource("file:///sum", text="three\nin words"),
                resource("file:///image", blob="AAAA"),
            )
        ),
        assistant(use("2")),
        user(result("2", text("overflow"), isError=True)),
        systemPrompt="Be brief.\nBe right.",
        tools=[{**ADD, "description": "Adds two numbers."}, {**ADD, "name": "multiply"}],
        toolChoice={"mode": "required"},
        outer=OuterCall("tools/call", "research", 7, call_id=1),
    )

    assert shown(asked) == (
        "A server asks to use your model, for up to 100 tokens\n"
        "  | calculator\n"
        "while it works on\n"
        "  | tools/call research\n"
        "system prompt\n"
        "  | Be brief.\n"
        "  | Be right.\n"
        "tools, run by the server (2; required)\n"
        "  | add(): Adds two numbers.\n"
        "  | multiply()\n"
        "user\n"
        "  | What is 1+2?\n"
        "  | [image/png, 4 characters of base64]\n"
        "assistant\n"
        "  | I will add.\n"
        '  | calls add {"a": 1, "b": 2}\n'
        "user\n"
        "  | result of a tool:\n"
        "  | 3\n"
        '  | link: {"name": "log", "uri": "file:///log"}\n'
        "  | [contents of file:///sum]\n"
        "  | three\n"
        "  | in words\n"
        "  | [contents of file:///image, 4 characters of base64]\n"
        "assistant\n"
        "  | calls add {}\n"
        "user\n"
        "  | error of a tool:\n"
        "  | overflow"
    )


INFERRED = OuterCall("tools/call", "add", 1, call_id=1, inferred=True)
OUTER_CALLS: dict[str, tuple[OuterCall | None, str]] = {
    "inferred": (INFERRED, "probably while it works on\n  | tools/call add\n"),
    "without a name": (OuterCall("prompts/list", None, 1, call_id=1), "while it works on\n  | prompts/list\n"),
    "unknown": (None, ""),
}


def test_the_call_that_caused_the_request_is_shown_if_it_is_known(subtests: pytest.Subtests) -> None:
    for case, (outer, about_it) in OUTER_CALLS.items():
        with subtests.test(case):
            assert shown(request(outer=outer)) == (
                f"A server asks to use your model, for up to 100 tokens\n  | calculator\n{about_it}user\n  | hello"
            )


NASTY = "\x1b[2J\x1b]0;title\x07\r\b\x9b1m\u202e\u2066\u200b\u2028\x00\ud800"


def test_no_control_character_reaches_the_terminal() -> None:
    asked = request(
        user(text(NASTY), {"type": "audio", "data": "", "mimeType": NASTY}),
        assistant(use(NASTY, NASTY, **{NASTY[:-1]: NASTY[:-1]})),
        user(
            result(NASTY, text(NASTY), {"type": "resource_link", "name": NASTY, "uri": NASTY}, resource(NASTY, blob=""))
        ),
        server=NASTY,
        outer=OuterCall(NASTY, NASTY, NASTY, call_id=NASTY),
        systemPrompt=NASTY,
        tools=[{"name": NASTY, "description": NASTY, "inputSchema": {}}],
    )

    on_screen = shown(asked, whole=True)

    assert {char for char in on_screen if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} == {"\n"}
    assert "\\x1b[2J" in on_screen


@pytest.mark.parametrize("whole", [False, True], ids=["short", "whole"])
def test_a_server_cannot_forge_a_line_of_the_question(whole: bool) -> None:
    """Neither by a line break nor by a line long enough to be wrapped: each row keeps the margin."""
    fake = "May your model answer? [y/a/s/v/N] y"
    asked = request(user(text(f"\n{fake}\n{' ' * 95}{fake}")), systemPrompt="x" * 200)

    rows = shown(asked, 100, whole=whole).split("\n")

    assert all(len(row) <= 100 for row in rows)
    assert [row for row in rows if row.startswith(fake)] == []


def test_no_line_is_wider_than_the_narrowest_terminal() -> None:
    properties = {f"parameter{n}": {"type": "string", "enum": ["x" * 99] * 9} for n in range(20)}
    asked = request(
        *[user(text("hello"))] * 262,
        maxTokens=2**53 - 1,
        tools=[
            {**ADD, "name": f"tool{number}", "inputSchema": {"type": "object", "properties": properties}}
            for number in range(99)
        ],
        toolChoice={"mode": "required"},
        systemPrompt="x" * 100,
        outer=OuterCall("resources/templates/list", "x" * 50, 7, call_id=1, inferred=True),
    )

    rows = shown(asked, 40).split("\n")

    assert rows[:3] == ["A server asks to use your model, for up", "to 9007199254740991 tokens", "  | calculator"]
    assert [row for row in rows if len(row) > 40] == []


def test_wide_characters_count_for_two_columns() -> None:
    assert shown(request(user(text("\u6f22" * 40))), 44).split("\n")[-2:] == ["  | " + "\u6f22" * 20] * 2


def test_long_texts_are_cut_and_the_rest_is_counted() -> None:
    asked = request(user(text("\n".join(str(n) for n in range(1, 101)))), systemPrompt="x" * 10_000)

    rows = shown(asked).split("\n")

    assert rows[3:17] == ["  | " + "x" * 76] * 12 + ["  | ... and 42 more lines", "user"]
    assert rows[-2:] == ["  | 12", "  | ... and 88 more lines"]


def test_a_text_of_4000_characters_and_a_whole_request_have_every_line() -> None:
    assert shown(request(user(text("x" * 4000))), 5000).endswith("user\n  | " + "x" * 4000)
    assert shown(request(user(text("x" * 4001))), 5000).endswith("x" * 4000 + "\n  | ... of 4001 characters")

    lines = [str(n) for n in range(10_000)]
    rows = shown(request(user(text("\n".join(lines)))), whole=True).split("\n")
    assert rows[-10_000:] == [f"  | {line}" for line in lines]


def test_only_the_last_messages_and_the_first_tools_are_shown() -> None:
    tools = [{**ADD, "name": f"tool_{n}"} for n in range(20)]

    text_shown = shown(request(*[user(text(f"message {n}")) for n in range(10)], tools=tools))

    assert "tools, run by the server (20; auto)" in text_shown
    assert (
        "  | tool_15()\n  | ... and 4 more tools\n(4 earlier messages: v shows all)\nuser\n  | message 4\n"
        in text_shown
    )
    assert text_shown.endswith("message 9")


EARLIER: dict[str, tuple[int, int, list[str]]] = {
    "all are shown": (6, 0, []),
    "one too many": (7, 0, ["(1 earlier message: v shows all)"]),
    "all seen": (7, 7, ["(6 earlier messages: v shows all)"]),
    "the first seen": (7, 1, ["(1 earlier message: v shows all)"]),
    "some new ones hidden": (9, 1, ["(3 earlier messages, 2 of them new: v shows all)"]),
    "two seen": (3, 2, ["(2 earlier messages: v shows all)"]),
}


def test_earlier_messages_are_counted(subtests: pytest.Subtests) -> None:
    for case, (count, seen, lines) in EARLIER.items():
        with subtests.test(case):
            asked = request(*[user(text(f"message {n}")) for n in range(count)])

            rows = shown(asked, seen=Seen(seen)).split("\n")

            assert [row for row in rows if "earlier" in row] == lines
            assert rows[-1] == f"  | message {count - 1}"


def test_tools_and_system_prompt_that_were_seen_are_only_named() -> None:
    asked = request(tools=[ADD, MULTIPLY], systemPrompt="Be brief.")

    assert shown(asked, seen=Seen(system_prompt=True, tools=True)).split("\n")[2:] == [
        "(system prompt, as before)",
        "(tools, as before: 2; auto)",
        "user",
        "  | hello",
    ]
    assert "  | multiply()\n" in shown(asked, seen=Seen(system_prompt=True, tools=True), whole=True)


async def test_the_oldest_are_forgotten() -> None:
    before = SeenBefore(most=6)
    asked = (request(user(text("first"))), request(user(text("second")), tools=[ADD]), request(server="another"))
    first, second, another = [await digests_of(each) for each in asked]

    before.add(first)
    assert before.seen(first) == Seen(1, True, True)
    before.add(second)
    assert before.seen(first) == Seen(1, True, True)
    before.add(another)
    assert before.seen(first) == Seen(0, True, False)


ANSWERS = [
    [result("1")],
    [result("1", text("a"))],
    [result("1", text("\ud800"))],
    [result("1", text("a"), isError=True)],
    [{**result("1", text("a")), "x": 1}],
    [result("1", text("a")), result("2")],
    [result("1"), result("2", text("a"))],
]


async def test_each_difference_between_two_requests_is_one_of_their_digests() -> None:
    """Also one of the place of a block, and with half of a surrogate pair."""
    asked = [request(assistant(*map(use, "12"[: len(blocks)])), user(*blocks)) for blocks in ANSWERS]
    asked += [request(systemPrompt="\ud800"), request(tools=[ADD]), request(tools=[ADD, MULTIPLY])]

    digests = [tuple(await digests_of(each)) for each in asked]

    assert len(set(digests)) == len(asked)


SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for,\n  in words."},
        "order": {"enum": ["new", "old"], "default": "new"},
        "limit": {"type": ["integer", "null"], "minimum": 1, "description": "At most so many."},
        "tags": {"type": "array", "items": {"type": "string"}},
        "other": {},
    },
    "required": ["query", "order"],
}


def test_a_tool_is_shown_with_its_parameters() -> None:
    tools = [
        {"name": "search", "description": "Searches the library.", "inputSchema": SEARCH},
        {**ADD, "inputSchema": {}},
    ]

    assert shown(request(tools=tools)).split("\n")[3:9] == [
        '  | search(query: string, order: "new" | "old" = "new", limit?: integer, tags?:',
        "  |     array of string, other?: any): Searches the library.",
        "  |     query: What to look for, in words.",
        "  |     limit: At most so many.",
        "  | add()",
        "user",
    ]


def test_the_rows_of_hostile_tools_are_bounded() -> None:
    part = {"type": "x" * 500, "description": "d" * 1000, "enum": ["e" * 100] * 500, "default": "f" * 500}
    schema = {"type": "object", "properties": {f"{'p' * 100}{n}": part for n in range(30)}}
    tool = {"name": "n" * 128, "description": "d" * 9000, "inputSchema": schema}

    rows = shown(request(tools=[tool] * 30)).split("\n")

    assert len(rows) == 3 + 60 + 2 + 2  # heading, tools, how many more, message
    assert re.fullmatch(r"  \| \.\.\. and \d+ more lines", rows[63])


def test_a_tool_that_is_required_by_name_is_shown() -> None:
    asked = request(tools=[ADD, MULTIPLY], toolChoice={"type": "tool", "name": "multiply"})

    assert shown(asked).split("\n")[2:7] == [
        "tools, run by the server (2; required)",
        "  | add()",
        "  | multiply()",
        "the model has to call",
        "  | multiply",
    ]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# A text in every place that the schema has, and in a field that it has not. Each begins with "marker".
MORE: Wire = {"marker extra": "marker of an extra", "_meta": {"marker.meta": ["marker in meta"]}}
HINTS: Wire = {"annotations": {"lastModified": "marker time"}, **MORE}
EVERYTHING = request(
    {
        "role": "user",
        "content": [
            {**text("marker text"), **HINTS},
            {"type": "image", "data": encoded("marker as an image"), "mimeType": "image/marker", **HINTS},
            {"type": "audio", "data": encoded("marker as audio"), "mimeType": "text/marker", **HINTS},
            {"type": "audio", "data": "marker: no base64!", "mimeType": "audio/marker", **HINTS},
        ],
        **MORE,
    },
    assistant(
        {**use("marker id" + "x" * 60, "marker tool" + "x" * 60, **{"marker argument": ["marker value"]}), **MORE}
    ),
    user(
        result(
            "marker id" + "x" * 60,
            {**text("marker result"), **HINTS},
            {
                "type": "resource_link",
                "name": "marker link",
                "uri": "marker://link",
                "title": "marker title",
                "description": "marker what it links",
                "mimeType": "text/marker-link",
                "size": 1,
                "icons": [{"src": "marker://icon"}],
                **HINTS,
            },
            {**resource("marker://text", mimeType="text/marker-kind", text="marker contents", **MORE), **HINTS},
            {
                **resource("marker://blob", mimeType="text/marker-blob", blob=encoded("marker in base64 \xff"), **MORE),
                **HINTS,
            },
            structuredContent={"marker key": {"marker inner": "marker structured"}},
            **MORE,
        )
    ),
    systemPrompt="marker system",
    temperature=0.25,
    stopSequences=["marker stop"],
    metadata={"marker user": "marker label"},
    includeContext="thisServer",
    modelPreferences={"hints": [{"name": "marker model"}], **MORE},
    toolChoice={"mode": "required", "name": "marker required" + "x" * 60, **MORE},
    tools=[
        {
            "name": "marker offered" + "x" * 60,
            "title": "marker name",
            "description": "marker of the tool" + "x" * 200,
            "inputSchema": {
                "type": "object",
                "title": "marker schema",
                "description": "marker of the schema",
                "properties": {
                    "marker a": {
                        "description": "marker of a" + "x" * 200,
                        "properties": {"marker b": {"description": "marker of b", "examples": ["marker example"]}},
                    }
                },
                "not": {"const": "marker not"},
                "$defs": {"marker def": {"enum": ["marker choice"]}},
                "marker keyword": True,
            },
            "outputSchema": {"type": "object", "description": "marker of the output"},
            "annotations": {"title": "marker hint"},
            **MORE,
        }
    ],
    **MORE,
)


def markers(value: object) -> set[str]:
    """The marked names and texts in JSON, also those in base64."""
    match value:
        case dict():
            return set().union(*map(markers, [*value, *value.values()]))
        case list():
            return set().union(*map(markers, value))
        case str() if value.startswith("marker"):
            return {value}
        case str() if value.startswith(encoded("marker")[:8]):
            return {base64.b64decode(value).decode()}
        case str() if "marker" in value:
            return {value}
    return set()


def test_the_whole_request_has_every_name_and_text_that_the_server_sent() -> None:
    sent = markers(EVERYTHING.params.to_wire())
    on_screen = shown(EVERYTHING, 10_000, whole=True)

    assert len(sent) == 54
    assert {marker for marker in sent if marker not in on_screen} == set()
    assert [on_screen.count(once) for once in ("marker contents", "marker tool")] == [1, 1]


def test_the_short_request_has_or_counts_everything_that_a_model_reads() -> None:
    sent = markers(EVERYTHING.params.to_wire())
    on_screen = shown(EVERYTHING, 10_000)

    assert {marker for marker in sent if marker[:50] not in on_screen} == {
        *("marker b", "marker of b", "marker example", "marker schema", "marker of the schema", "marker not"),
        *("marker def", "marker choice", "marker keyword"),  # so far counted, in the schema
        *("marker name", "marker of the output", "marker hint", "marker time", "marker://icon", "text/marker-kind"),
    }
    assert "... and 324 more characters in its schema: v shows all\n" in on_screen


FILES: dict[str, tuple[str, str, str]] = {
    "image": ("image/png", "iVBORw0KGgo=", ""),
    "text in an image": ("image/png", encoded("send me"), "\n  | send me"),
    "binary text": ("text/plain", encoded("send\x00 me"), "\n  | send\\x00 me"),
    "parameters": ("Text/Plain; charset=x", encoded("send me"), "\n  | send me"),
    "other alphabet": ("application/json", "_-8=", "\n  | \\xff\\xef"),
    "ambiguous": ("text/plain", "c2VuZCBtZR==", "\n  | send me\n  | c2VuZCBtZR=="),
    "PDF": ("application/pdf", "AAAA", ""),
    "no base64": ("image/png", "A", "\n  | A"),
}


def test_a_file_is_shown_as_text_where_a_model_may_read_it_as_such(subtests: pytest.Subtests) -> None:
    for case, (kind, data, words) in FILES.items():
        with subtests.test(case):
            file = {"type": "image", "mimeType": kind, "data": data}

            assert shown(request(user(file))).endswith(f"user\n  | [{kind}, {len(data)} characters of base64]{words}")


def test_only_the_beginning_of_a_long_text_in_base64_is_decoded_for_the_short_view() -> None:
    file = {"type": "image", "mimeType": "text/plain", "data": encoded("x" * 300_000 + "\nend")}

    short = shown(request(user(file)), 10_000)
    whole = shown(request(user(file)), 10_000, whole=True)

    assert short.endswith("\n  | " + "x" * 900 + "\n  | ... and 398808 more characters of base64")
    assert short.split("\n")[3] == "  | [text/plain, 400008 characters of base64]"
    assert whole.endswith("x\n  | end")

    file["data"] = "\n".join(encoded("x" * 57) for _ in range(100))
    rows = shown(request(user(file)), 10_000).split("\n")
    assert rows[4:] == ["  | " + "x" * 888, "  | ... and 6499 more characters of base64"]

    file |= {"data": encoded("x" + "\u00e9" * 1000), "mimeType": "image/png"}  # a character is cut
    rows = shown(request(user(file)), 10_000).split("\n")
    assert rows[4:] == ["  | x" + "\u00e9" * 449, "  | ... and 1468 more characters of base64"]


def steps(rows: Iterator[str | None]) -> Iterator[int]:
    """How many functions are called for each row, or pause."""
    last: list[str | None] = [None]
    while last != ["the end"]:
        yield calls_in(lambda: last.__setitem__(0, next(rows, "the end")))


@pytest.mark.parametrize("whole", [False, True], ids=["short", "whole"])
def test_no_step_of_a_page_does_more_than_a_portion_of_the_work(whole: bool, subtests: pytest.Subtests) -> None:
    """Between two rows, or places where other tasks can run, whatever a server sends within the limits."""
    wide: Wire = {f"p{number}": {"enum": [*range(9)], "description": "x"} for number in range(1600)}
    numbers: Wire = {"a": [{"b": 1}] * 20_000}
    call, schema = use("1", a=[1] * 40_000), {"type": "object", "x": [[]] * 10_000}
    file = {"type": "image", "mimeType": "image/png", "data": encoded("\u00e9" * 150_000)}
    for case, asked in {
        "parameters": request(tools=[{"name": "t", "inputSchema": {"properties": wide}}]),
        "schemas": request(tools=[{"name": f"t{n}", "inputSchema": schema} for n in range(2)]),
        "arguments": request(assistant(call), user(result("1"))),
        "structured content": request(assistant(use("1")), user(result("1", structuredContent=numbers))),
        "marks": request(user(text("a\u0301\u0301\u200b" * 8000))),
        "lines": request(user(text("a\u0301\n" * 2000))),
        "a file": request(user(file)),
        "metadata": request(metadata={f"k{number}": 1 for number in range(20_000)}),
    }.items():
        with subtests.test(case):
            assert max(steps(describe(asked, Layout(80), whole=whole))) < 50_000


def test_structured_content_that_the_text_repeats_is_shown_once() -> None:
    asked = request(assistant(use("1")), user(result("1", text('{"sum": 3}'), structuredContent={"sum": 3})))

    assert shown(asked).endswith('user\n  | result of a tool:\n  | {"sum": 3}')


def of_schema(**more: Any) -> list[str]:
    """The rows of a tool that are about its schema."""
    schema = {"type": "object", "properties": {"exact_match": {"type": "boolean", "title": "Exact Match"}}, **more}
    rows = shown(request(tools=[{"name": "find", "inputSchema": schema}])).split("\n")
    assert rows[3] == "  | find(exact_match?: boolean)"
    return rows[4:-2]


def test_what_a_schema_says_beside_the_parameters_is_counted() -> None:
    """Whatever the schema's place for it: the model reads all of it."""
    assert of_schema() == []
    assert of_schema(additionalProperties=False) == []
    assert of_schema(description="Send all") == ["  |     ... and 8 more characters in its schema: v shows all"]
    assert of_schema(x=1) == []
    assert of_schema(y=1) == ["  |     ... and 1 more character in its schema: v shows all"]


def test_what_the_server_wants_of_the_provider_is_shown() -> None:
    asked = request(temperature=0.5, metadata={"user_id": "someone", "x": "y" * 5000}, _meta={"progressToken": 1})

    rows = shown(asked).split("\n")

    assert rows[2:4] == ["settings", "  | temperature: 0.5"]
    assert rows[4].startswith('  | metadata: {"user_id": "someone", "x": "yyy')
    assert re.fullmatch(r"  \| \.\.\. and \d+ more lines", rows[7])
    assert rows[8:] == ["user", "  | hello"]
