"""Asking the user on a server's behalf."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after, to_thread, wait_all_tasks_blocked

from mcp_host import OuterCall
from mcp_host.elicitation import Elicitation, FormRequest, UrlRequest, read_elicitations
from mcp_host.elicitation.terminal import FormDialog
from mcp_host.errors import InputRefused
from mcp_host.terminal.device import Terminal
from mcp_host.testing import Context, Server
from mcp_host.types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult
from tests.client.support import Era, connected
from tests.extent import on_both
from tests.terminal.test_text import calls_in

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "count": {"type": "integer", "default": 3},
        "sure": {"type": "boolean", "default": False},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
        "note": {"type": "string", "default": None},
    },
    "required": ["name"],
}
FORM: dict[str, Any] = {"message": "Who?", "requestedSchema": SCHEMA}
URL: dict[str, Any] = {"mode": "url", "message": "Sign in", "url": "https://id.example/go?x=1", "elicitationId": "e-1"}
DEFAULTS = {"color": "red", "count": 3, "sure": False, "tags": ["a"]}

Answer = Callable[[FormRequest], ElicitResult]


def handler(answer: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """An async handler: a plain function would run in a thread."""

    async def handle(request: FormRequest | UrlRequest) -> Any:
        return answer(request)

    return handle


async def fill_in(answer: Answer, params: dict[str, Any] = FORM) -> ElicitResult:
    return await Elicitation(form=handler(answer)).answer(params, server="shop")


async def refusal(elicitation: Elicitation, params: dict[str, Any], **options: Any) -> tuple[int, str]:
    with pytest.raises(InputRefused) as caught:
        await elicitation.answer(params, server="shop", **options)
    return caught.value.code, str(caught.value)


FORMS = handler(FormRequest.decline)
URLS = handler(UrlRequest.accept)


def test_the_modes_with_a_handler_are_the_capability() -> None:
    assert Elicitation(form=FORMS).capability() == {}
    assert Elicitation(url=URLS).capability() == {"url": {}}
    assert Elicitation(form=FORMS, url=URLS).capability() == {"form": {}, "url": {}}


def test_a_registration_without_a_handler_is_a_mistake_and_a_good_one_is_frozen() -> None:
    with pytest.raises(ValueError, match="needs a handler"):
        Elicitation()
    elicitation = Elicitation(form=FORMS)
    with pytest.raises(FrozenInstanceError):
        elicitation.form = None  # type: ignore[misc]  # that is the point


async def test_handlers_may_be_plain_functions() -> None:
    def answer(request: FormRequest | UrlRequest) -> ElicitResult:
        threads.append(threading.current_thread())
        return request.decline()

    threads: list[threading.Thread] = []
    elicitation = Elicitation(form=answer, url=answer)
    with fail_after(25):
        for params in (FORM, URL):
            assert await elicitation.answer(params, server="shop") == ElicitResult(action="decline")

    assert len(threads) == 2
    assert threading.current_thread() not in threads


# How many at once


def asking() -> Server:
    """A server whose tool shows so many forms at once."""
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context, forms: int) -> None:
        async with create_task_group() as tasks:
            for number in range(forms):
                tasks.start_soon(ctx.elicit, f"form {number}", {"type": "object", "properties": {}})

    return server


@on_both
async def test_four_requests_of_one_server_are_with_the_person_at_the_same_time(era: Era) -> None:
    async def fill_in(request: FormRequest) -> ElicitResult:
        inside.append(request.message)
        most.append(len(inside))
        await opened.wait()
        inside.remove(request.message)
        return request.decline()

    inside: list[str] = []
    most: list[int] = []
    opened = Event()
    async with (
        connected(asking(), era=era.version, elicitation=Elicitation(form=fill_in)) as client,
        create_task_group() as tasks,
    ):
        tasks.start_soon(client.call_tool, "ask", {"forms": 10})
        await wait_all_tasks_blocked()
        assert len(inside) == 4
        opened.set()

    assert (len(most), max(most)) == (10, 4)


@on_both
async def test_a_form_whose_handler_awaits_a_call_does_not_count_meanwhile(era: Era) -> None:
    async def fill_in(request: FormRequest) -> ElicitResult:
        asked.append(request.message)
        if len(asked) == 1:
            await client.call_tool("ask", {"forms": 1})
        return request.decline()

    asked: list[str] = []
    one_at_once = Elicitation(form=fill_in, at_once_per_server=1)
    async with connected(asking(), era=era.version, elicitation=one_at_once) as client:
        await client.call_tool("ask", {"forms": 1})

    assert len(asked) == 2


@on_both
async def test_a_thread_that_was_left_behind_counts_until_it_returns() -> None:
    def fill_in(request: FormRequest) -> ElicitResult:
        began.append(request)
        assert ends.wait(25)
        return request.decline()

    began: list[FormRequest] = []
    ends = threading.Event()
    elicitation = Elicitation(form=fill_in, at_once_per_server=1)
    ask = partial(elicitation.answer, FORM, server="shop", share=elicitation.share())
    with fail_after(25):
        async with create_task_group() as withdrawn:
            withdrawn.start_soon(ask)
            while not began:
                await to_thread.run_sync(int)
            withdrawn.cancel_scope.cancel()
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            await wait_all_tasks_blocked()
            assert len(began) == 1
            ends.set()

    assert len(began) == 2


def test_the_number_at_once_is_at_least_one(subtests: pytest.Subtests) -> None:
    wrong: Any
    for wrong, error, problem in ((0, ValueError, "at least 1, not 0"), ("4", TypeError, "a number, not '4'")):
        with subtests.test(wrong), pytest.raises(error, match=f"^at_once_per_server must be {problem}$"):
            Elicitation(form=FORMS, at_once_per_server=wrong)


@pytest.mark.parametrize("mode", [{}, {"mode": "form"}, {"mode": None}], ids=["absent", "form", "null"])
async def test_a_form_reaches_its_handler_with_all_that_the_server_sent(mode: dict[str, Any]) -> None:
    seen: list[FormRequest] = []

    def answer(request: FormRequest) -> ElicitResult:
        seen.append(request)
        return request.cancel()

    result = await fill_in(answer, {**FORM, **mode, "_meta": {"k": "v"}})

    assert result == ElicitResult(action="cancel")
    (request,) = seen
    assert (request.server, request.message, request.requested_schema) == ("shop", "Who?", SCHEMA)
    assert request.params.meta == {"k": "v"}
    assert request.defaults == DEFAULTS


async def test_accepting_fills_in_the_defaults_of_what_was_not_given() -> None:
    result = await fill_in(lambda request: request.accept({"name": "Ann", "count": 1}, sure=True))

    assert result.to_wire() == {
        "action": "accept",
        "content": {"name": "Ann", "color": "red", "count": 1, "sure": True, "tags": ["a"]},
    }


async def test_a_default_that_its_field_does_not_allow_is_left_out_as_a_mistake_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fields = {
        "count": {"type": "integer", "default": "3"},
        "color": {"$ref": "#/$defs/Color", "default": "pink"},
        "size": {"$ref": "#/$defs/Size", "default": "s"},
        "name": {"type": "string", "default": "Ann"},
    }
    defs = {"Color": {"enum": ["red", "blue"]}, "Size": {"enum": ["s", "m"]}}
    schema = {"type": "object", "properties": fields, "$defs": defs}

    result = await fill_in(FormRequest.accept, {**FORM, "requestedSchema": schema})

    assert result.content == {"size": "s", "name": "Ann"}
    said = "a form of shop has a default that its field does not allow: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{said}'count': not of type 'integer'",
        f"{said}'color': not one of: 'red', 'blue'",
    ]


async def test_a_field_may_be_called_as_the_parameters_are() -> None:
    schema = {"type": "object", "properties": {"content": {"type": "string"}, "self": {"type": "string"}}}

    result = await fill_in(lambda request: request.accept(content="c", self="s"), {**FORM, "requestedSchema": schema})

    assert result.content == {"content": "c", "self": "s"}


async def test_declining_has_no_content_and_a_whole_result_leaves_defaults_out() -> None:
    result = await fill_in(lambda _: ElicitResult(action="accept", content={"name": "Ann"}))

    assert (await fill_in(FormRequest.decline)).to_wire() == {"action": "decline"}
    assert result.content == {"name": "Ann"}


def fail(request: FormRequest) -> ElicitResult:
    raise RuntimeError("the user's password is hunter2")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda request: request.accept(name="A"), "not what the server asked for: $.name: shorter than 2 characters"),
        (lambda request: request.accept(), "not what the server asked for: 'name' is a required property"),
        (lambda _: ElicitResult(action="accept"), "not what the server asked for: 'name' is a required property"),
        (
            lambda _: ElicitResult(action="accept", content={"name": 5}),
            "not what the server asked for: $.name: not of type 'string'",
        ),
        (lambda _: {"action": "accept"}, "an elicitation handler returns an ElicitResult, not dict"),
        (fail, "the user's password is hunter2"),
    ],
    ids=["too short", "missing", "no content", "of another type", "no result", "an exception"],
)
async def test_an_answer_that_does_not_fit_tells_the_handlers_author_and_not_the_server(
    answer: Answer, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputRefused) as caught:
        await fill_in(answer)

    error, words = caught.value, "this client could not ask its user"
    assert (error.code, str(error), error.data) == (-32603, words, None)
    assert str(error.__cause__) == told
    assert [record.getMessage() for record in caplog.records] == [f"elicitation for shop: {words}"]
    assert told in caplog.text


LISTED = [f"value {n}" for n in range(7)]


PROBLEMS: list[tuple[object, Any, str]] = [
    ({"type": "string"}, 5, "$.f: not of type 'string'"),
    ({"type": ["string", "boolean"]}, 5, "$.f: not of type 'string', 'boolean'"),
    ({"enum": ["red", "green"]}, "blue", "$.f: not one of: 'red', 'green'"),
    ({"enum": LISTED}, "blue", "$.f: not one of: 'value 0', 'value 1', 'value 2', 'value 3', 'value 4' or 2 more"),
    (
        {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "blue",
        "$.f: not one of: 'r', 'g'",
    ),
    (
        {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}},
        ["r", "blue"],
        "$.f[1]: not one of: 'r', 'g'",
    ),
    ({"const": "yes"}, "no", "$.f: not 'yes'"),
    ({"minimum": 1}, 0, "$.f: less than the minimum of 1"),
    ({"maximum": 1.5}, 2, "$.f: greater than the maximum of 1.5"),
    ({"exclusiveMinimum": 1}, 1, "$.f: not greater than 1"),
    ({"exclusiveMaximum": 1}, 1, "$.f: not less than 1"),
    ({"multipleOf": 5}, 7, "$.f: not a multiple of 5"),
    ({"minLength": 1}, "", "$.f: shorter than 1 character"),
    ({"maxLength": 3}, "four", "$.f: longer than 3 characters"),
    ({"pattern": "^[a-z]+$"}, "ABC", "$.f: does not match '^[a-z]+$'"),
    ({"minItems": 2}, ["a"], "$.f: fewer than 2 items"),
    ({"maxItems": 1}, ["a", "b"], "$.f: more than 1 item"),
    ({"uniqueItems": True}, ["a", "a"], "$.f: an array of 2 items has one of them twice"),
    ({"oneOf": [{"minLength": 1}, {"maxLength": 9}]}, "abc", "$.f: it violates 'oneOf', which is an array of 2 items"),
    # more digits than Python prints
    ({"minProperties": 10**5000}, {}, "$.f: an object of 0 members does not have enough properties"),
    (False, "x", "$.f: no value is allowed"),
]


def test_the_problem_of_a_field_is_described_without_the_users_input() -> None:
    def problem_of(field: object, value: object) -> str:
        schema = {"type": "object", "properties": {"f": field}}
        request = FormRequest("shop", ElicitRequestFormParams(message="Who?", requested_schema=schema))
        with pytest.raises(ValueError, match=r"^not what the server asked for: ") as mistake:
            request.accept(f=value)
        return str(mistake.value).removeprefix("not what the server asked for: ")

    assert [problem_of(field, value) for field, value, _ in PROBLEMS] == [problem for *_, problem in PROBLEMS]


def form(**fields: object) -> dict[str, Any]:
    return {"message": "Who?", "requestedSchema": {"type": "object", "properties": fields}}


SEVERAL = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}


def show(request: FormRequest | UrlRequest) -> ElicitResult:
    raise AssertionError("must not be shown")


SHOWS_BOTH = Elicitation(form=handler(show), url=handler(show))
UNANSWERABLE: list[tuple[str, dict[str, Any], str]] = [
    ("2025-03-26", URL, "ElicitResult came with revision 2025-06-18"),
    ("2025-03-26", form(), "ElicitResult came with revision 2025-06-18"),
    (
        "2025-06-18",
        form(name={"type": "string"}, tags=SEVERAL),
        "a choice of several at content came with revision 2025-11-25",
    ),
    ("2026-07-28", form(a={"type": "object"}), "no answer can hold what 'a' asks for"),
    ("2026-07-28", form(a={"type": ["object", "null"]}), "no answer can hold what 'a' asks for"),
    ("2026-07-28", form(a={"type": "array", "items": {"type": "number"}}), "no answer can hold what 'a' asks for"),
]


async def test_a_form_or_url_whose_answer_could_not_be_sent_is_not_shown() -> None:
    refusals = [await refusal(SHOWS_BOTH, params, revision=revision) for revision, params, _ in UNANSWERABLE]

    assert refusals == [(-32602, f"this elicitation cannot be answered: {problem}") for *_, problem in UNANSWERABLE]


@pytest.mark.parametrize(
    ("revision", "params"),
    [
        ("2025-11-25", form(tags=SEVERAL)),
        ("2025-06-18", form(tags={"type": ["array", "string"], "items": {"type": "string"}})),
        (
            "2025-06-18",
            form(a=True, b={}, c={"type": ["string", "object"]}, d={"oneOf": [{"const": "x", "title": "X"}]}),
        ),
        ("2025-11-25", form(a={"type": "array"}, b={"type": "array", "items": {"anyOf": [{"const": "x"}]}})),
    ],
    ids=["several", "several or one", "all kinds of fields", "lists of what is not said"],
)
async def test_a_form_that_some_answer_fits_is_shown(revision: str, params: dict[str, Any]) -> None:
    answer = await Elicitation(form=FORMS).answer(params, server="shop", revision=revision)

    assert answer == ElicitResult(action="decline")


async def test_a_value_that_no_form_can_hold_is_a_mistake_of_the_handlers_author() -> None:
    params = {**FORM, "requestedSchema": {"type": "object", "properties": {"a": {}}}}

    with pytest.raises(InputRefused) as caught:
        await fill_in(lambda request: request.accept(a={"b": 1}), params)

    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_handler_may_refuse_in_its_own_words() -> None:
    def refuse(_: object) -> ElicitResult:
        raise InputRefused(-1, "not now")

    assert await refusal(Elicitation(form=handler(refuse)), FORM) == (-1, "not now")


async def test_so_may_one_in_a_task_group_unless_something_else_fails_there_too() -> None:
    refused = InputRefused(-1, "not now")
    for errors, answer in (
        ([refused, ExceptionGroup("inner", [refused])], (-1, "not now")),
        ([refused, ValueError("a defect")], (-32603, "this client could not ask its user")),
    ):

        def fail(_: object, errors: list[Exception] = errors) -> ElicitResult:
            raise ExceptionGroup("unhandled errors in a TaskGroup", errors)

        assert await refusal(Elicitation(form=handler(fail)), FORM) == answer


async def test_an_answer_to_a_schema_that_cannot_be_checked_goes_out_with_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)y"}}}

    result = await fill_in(lambda request: request.accept(a="b"), {**FORM, "requestedSchema": schema})

    assert result.content == {"a": "b"}
    assert [(record.levelno, record.getMessage().partition(": ")[0]) for record in caplog.records] == [
        (logging.WARNING, "an answer for shop goes out unchecked")
    ]


def test_fields_that_are_not_objects_have_no_defaults_and_a_schema_needs_no_fields() -> None:
    def request(schema: dict[str, Any]) -> FormRequest:
        params = ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", **schema})
        return FormRequest("shop", params)

    assert request({"properties": {"a": True, "b": {"default": 1}}}).defaults == {"b": 1}
    assert request({}).accept(a=1) == ElicitResult(action="accept", content={"a": 1})


def test_a_form_of_thousands_of_fields_and_definitions_takes_a_portion_of_work_to_read(
    subtests: pytest.Subtests,
) -> None:
    """Its defaults are checked as far as that goes, and in the terminal where they are asked for."""
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(2000)}
    table: list[tuple[str, dict[str, Any], int]] = [
        ("fields", {"type": "string", "default": "a"}, 3000),
        ("patterns", {"type": "string", "default": "a", "pattern": "^a{1,50}$"}, 1600),
        ("mistakes", {"type": "string", "default": 5}, 2400),
        ("references", {"allOf": [{"$ref": "#/$defs/d1990"}] * 2, "default": "a"}, 1000),
        ("long references", {"$ref": "#/$defs/d0", "default": "a"}, 1000),
        ("anchors", {"$ref": "#other", "default": "a"}, 1000),
    ]
    for case, field, count in table:
        form = {"type": "object", "properties": {f"f{n}": field for n in range(count)}}
        form["$defs"] = {**chain, "d2000": {"type": "integer", "$anchor": "other"}}
        asked = FormRequest("shop", ElicitRequestFormParams(message="Who?", requested_schema=form))
        with subtests.test(case):
            calls = calls_in(partial(getattr, asked, "defaults"))
            opened = calls_in(partial(FormDialog, asked, Terminal.__new__(Terminal)))
            assert max(calls, opened) < 400_000
            assert ("f0" in asked.defaults) == (case not in ("mistakes", "references"))


REFUSED: list[tuple[Elicitation, dict[str, Any], str]] = [
    (Elicitation(form=FORMS), URL, "this client offers elicitation by form, not 'url'"),
    (Elicitation(url=URLS), FORM, "this client offers elicitation by url, not 'form'"),
    (Elicitation(form=FORMS, url=URLS), {**FORM, "mode": "voice"}, "this client offers elicitation by form and url, not 'voice'"),
    (Elicitation(form=FORMS), {**FORM, "mode": ["form"]}, "this client offers elicitation by form, not ['form']"),
    (Elicitation(form=FORMS), {"requestedSchema": SCHEMA}, "malformed ElicitRequestFormParams: message: Field required"),
    (Elicitation(form=FORMS), {**FORM, "requestedSchema": {"type": "string"}}, 'requestedSchema needs "type": "object" and an object of "properties"'),
    (Elicitation(form=FORMS), {**FORM, "requestedSchema": {"type": "object", "properties": []}}, 'requestedSchema needs "type": "object" and an object of "properties"'),
    (Elicitation(url=URLS), {"mode": "url", "message": "m"}, "malformed ElicitRequestURLParams: url: Field required"),
    (Elicitation(url=URLS), {**URL, "url": "file:///etc/passwd"}, "this client opens only plain http and https URLs, not 'file:///etc/passwd'"),
    (Elicitation(url=URLS), {**URL, "url": "https://a/".ljust(8193, "b")}, "this client opens URLs of 8,192 characters at most, not of 8,193"),
]  # fmt: skip


async def test_a_request_that_was_never_offered_or_is_malformed_is_refused() -> None:
    refusals = [await refusal(elicitation, params) for elicitation, params, _ in REFUSED]

    assert refusals == [(-32602, reason) for *_, reason in REFUSED]


async def test_a_url_reaches_its_handler_with_the_host_to_show() -> None:
    seen: list[UrlRequest] = []

    def answer(request: UrlRequest) -> ElicitResult:
        seen.append(request)
        return request.accept()

    url = "https://bank.example@Evil.example:8443/pay"
    call = OuterCall("tools/call", "pay", 7, call_id=1)
    result = await Elicitation(url=handler(answer)).answer({**URL, "url": url}, call, server="shop")

    assert result.to_wire() == {"action": "accept"}
    (request,) = seen
    assert request.outer is call
    assert (request.server, request.message, request.url, request.host) == ("shop", "Sign in", url, "evil.example")
    assert (request.elicitation_id, request.params.mode) == ("e-1", "url")


async def test_an_answer_to_a_url_has_no_content() -> None:
    visit = handler(lambda _: ElicitResult(action="accept", content={"code": "1"}))

    assert await refusal(Elicitation(url=visit), URL) == (-32603, "this client could not ask its user")


def test_the_error_that_requires_urls_is_read_as_far_as_it_can_be() -> None:
    url = ElicitRequestURLParams.from_wire(URL)

    assert read_elicitations({"elicitations": [URL]}) == [url]
    assert read_elicitations({"elicitations": [5, *[URL] * 100]}) == [url] * 63
    assert read_elicitations({"elicitations": [{**URL, "more": [0] * 10_000}]}) == []
    assert read_elicitations({"elicitations": [5, {}, {**URL, "url": "file:///"}, FORM, URL]}) == [url]
    nothing: object
    for nothing in ({"elicitations": []}, {"elicitations": URL}, {}, [URL], "elicitations", None):
        assert read_elicitations(nothing) == []
