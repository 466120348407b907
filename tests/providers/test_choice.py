"""Choosing one of several models for a request."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from mcp_host.errors import InputRefused, ProviderError
from mcp_host.providers.choice import Choice, Model, Models, rank
from mcp_host.sampling import Allow, Deny, Sampling, SamplingRequest, always
from mcp_host.types import CreateMessageResult, ModelPreferences, TextContent
from tests.sampling.asking import ADD, Wire, assistant, refused, request, result, text, use, user, wire


def says(name: str) -> Model:
    """A model that answers with its own name."""
    return Model(lambda request: request.reply(name, model=name), name=name)


def never(request: SamplingRequest) -> str:
    raise AssertionError("choosing asks no model")


SMALL = Model(never, name="claude-haiku-5", cost=0.1, speed=0.9, intelligence=0.5)
MIDDLE = Model(never, name="claude-sonnet-5", cost=0.5, speed=0.6, intelligence=0.8, aliases=["gpt-6"])
LARGE = Model(never, name="gemini-4-pro", cost=0.9, speed=0.3, intelligence=1.0)
ALL = [MIDDLE, SMALL, LARGE]


def hints(*names: str | None) -> Wire:
    return {"hints": [{} if name is None else {"name": name} for name in names]}


def chosen(preferences: Wire | None, *models: Model) -> str:
    asked = request() if preferences is None else request(modelPreferences=preferences)
    return Models(models or ALL).choose(asked).why


def test_the_first_hint_that_matches_decides_then_the_priorities_then_the_order(subtests: pytest.Subtests) -> None:
    table: list[tuple[Wire | None, str]] = [
        (None, "claude-sonnet-5: the first in the list, as the server states no priorities"),
        ({}, "claude-sonnet-5: the first in the list, as the server states no priorities"),
        (hints("haiku"), "claude-haiku-5: the server's hint 'haiku' matches"),
        (hints("HAIKU"), "claude-haiku-5: the server's hint 'HAIKU' matches"),
        (hints(" haiku "), "claude-haiku-5: the server's hint 'haiku' matches"),
        (hints("gpt"), "claude-sonnet-5: the server's hint 'gpt' matches"),
        (hints("llama", "gemini", "haiku"), "gemini-4-pro: the server's hint 'gemini' matches"),
        (hints("claude"), "claude-sonnet-5: the server's hint 'claude' matches; of 2 such models, the first in the list, as the server states no priorities"),
        ({**hints("claude"), "speedPriority": 0.8}, "claude-haiku-5: the server's hint 'claude' matches; of 2 such models, best for speed 0.8"),
        ({**hints("gemini"), "costPriority": 1}, "gemini-4-pro: the server's hint 'gemini' matches"),
        ({**hints("llama"), "costPriority": 1}, "claude-haiku-5: no model matches the server's hints; best for cost 1"),
        (hints("", None, " "), "claude-sonnet-5: the first in the list, as the server states no priorities"),
        (hints("claude-haiku-5-20990101"), "claude-sonnet-5: no model matches the server's hints; the first in the list, as the server states no priorities"),
        (hints("haiku\x1b[2J"), "claude-sonnet-5: no model matches the server's hints; the first in the list, as the server states no priorities"),
        ({"costPriority": 0.8, "speedPriority": 0.5}, "claude-haiku-5: best for cost 0.8, speed 0.5"),
        ({"intelligencePriority": 1}, "gemini-4-pro: best for intelligence 1"),
        ({"costPriority": 0.4, "intelligencePriority": 0.6}, "claude-sonnet-5: best for cost 0.4, intelligence 0.6"),
        # outside of 0 to 1, the nearer bound
        ({"costPriority": 7, "speedPriority": -3}, "claude-haiku-5: best for cost 1"),
        ({"intelligencePriority": float("inf")}, "gemini-4-pro: best for intelligence 1"),
        ({"intelligencePriority": float("nan")}, "claude-sonnet-5: the first in the list, as the server states no priorities"),
    ]  # fmt: skip  # one case on each line
    for preferences, why in table:
        with subtests.test(preferences=preferences):
            assert chosen(preferences) == why


def test_a_model_with_just_the_name_in_a_hint_comes_before_others_that_have_it_as_a_part() -> None:
    small, large = Model(never, name="gpt-6-mini", cost=0.1), Model(never, name="gpt-6", aliases=["Orion"], cost=0.9)
    preferred = {"costPriority": 1}

    assert chosen(hints("gpt-6") | preferred, small, large) == "gpt-6: the server's hint 'gpt-6' matches"
    assert chosen(hints("orion"), small, large) == "gpt-6: the server's hint 'orion' matches"
    assert chosen(hints("gpt") | preferred, small, large).startswith(
        "gpt-6-mini: the server's hint 'gpt' matches; of 2"
    )


def test_models_of_equal_score_stay_in_the_order_of_the_host_in_spite_of_rounding() -> None:
    first = Model(never, name="first", speed=0.3)
    second = Model(never, name="second", speed=0.1, intelligence=0.7)  # 0.1 + 0.7 > 0.3 + 0.5, as floats

    ranked, _ = rank([first, second], ModelPreferences(speed_priority=1, intelligence_priority=1))

    assert [model.name for model in ranked] == ["first", "second"]


def test_what_is_not_known_of_a_model_counts_as_one_half() -> None:
    unknown = Model(never, name="unknown")

    assert (unknown.cost, unknown.speed, unknown.intelligence) == (0.5, 0.5, 0.5)
    assert chosen({"speedPriority": 1}, unknown, SMALL) == "claude-haiku-5: best for speed 1"
    assert chosen({"speedPriority": 1}, LARGE, unknown) == "unknown: best for speed 1"


def test_a_servers_hint_is_escaped_and_cut_in_the_reason() -> None:
    model = Model(never, name="x" * 200 + "\x1b[2J")

    assert chosen(hints("x" * 200 + "\x1b[2J"), model, SMALL).endswith(
        f": the server's hint '{'x' * 80}… (204 characters)' matches"
    )


def test_a_single_model_is_chosen_without_looking_at_preferences() -> None:
    assert chosen(hints("gemini"), SMALL) == "claude-haiku-5: the only model that is allowed"


async def test_a_request_goes_to_the_chosen_model_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    models = Models([says("large"), says("small")])
    asked = Sampling(with_tools=models, approve=always).session(server="calculator", knows_tools=True)

    with caplog.at_level(logging.DEBUG, logger="mcp_host.providers.choice"):
        answer = await asked.answer(wire(modelPreferences=hints("small")), None)

    assert (answer.model, answer.content) == ("small", [TextContent(text="small")])
    assert caplog.messages == ["sampling for calculator: small: the server's hint 'small' matches"]


async def test_an_answer_that_is_only_text_says_which_model_wrote_it() -> None:
    async def text_only(request: SamplingRequest) -> str:
        return "hello"

    assert await Models([Model(text_only, name="small")])(request()) == CreateMessageResult(
        content=TextContent(text="hello"), model="small", stop_reason="endTurn"
    )


async def test_an_approver_sees_the_choice() -> None:
    models = Models([says("large"), says("small")])
    shown: list[Choice] = []

    async def approve(request: SamplingRequest) -> Allow | Deny:
        shown.append(models.choose(request))
        return Allow() if shown[-1].model.name == "small" else Deny("too expensive")

    asked = Sampling(with_tools=models, approve=approve).session(server="calculator", knows_tools=True)

    assert (await asked.answer(wire(modelPreferences=hints("small")), None)).model == "small"
    assert str(await refused(asked, wire())) == "too expensive"
    assert [choice.why.partition(":")[0] for choice in shown] == ["small", "large"]


async def test_no_server_gets_a_model_that_the_host_does_not_allow_it() -> None:
    def allow(request: SamplingRequest) -> list[str]:
        return ["small"] if request.server == "untrusted" else ["small", "large"]

    models = Models([says("large"), says("small")], allow=allow)

    for server, model in (("untrusted", "small"), ("trusted", "large")):
        answer = await models(request(server=server, modelPreferences=hints("large")))
        assert isinstance(answer, CreateMessageResult)
        assert answer.model == model


async def test_a_request_for_which_no_model_is_allowed_is_refused() -> None:
    models = Models([says("large")], allow=lambda request: ())

    with pytest.raises(InputRefused) as refusal:
        await models(request())

    assert (refusal.value.code, str(refusal.value)) == (-1, "this client has no model for this server")


def test_allowing_a_model_that_is_not_there_is_an_error() -> None:
    models = Models([says("large")], allow=lambda request: ["large", "lagre"])

    with pytest.raises(ValueError, match=r"^allow names lagre, but the models are large$"):
        models.choose(request())


def calling(*ids: str) -> Model:
    """A model that calls ``add`` under these ids."""
    return Model(lambda request: called(*ids), name="caller", speed=0.1)


def called(*ids: str) -> CreateMessageResult:
    return CreateMessageResult.from_wire(
        {**assistant(*(use(id) for id in ids)), "model": "caller", "stopReason": "toolUse"}
    )


def with_results(
    *ids: str,
    server: str = "calculator",
    session: object = None,
    after: Sequence[Wire] = (),
    preferences: Wire | None = None,
) -> SamplingRequest:
    conversation = [user(text()), assistant(*map(use, ids)), user(*[result(id, text("3")) for id in ids])]
    return request(*conversation, *after, server=server, session=session, tools=[ADD], modelPreferences=preferences)


@pytest.mark.parametrize(
    "after", [[], [user(text("now")), user(text("go on"))], [assistant(text("{"))]], ids=["none", "texts", "a prefill"]
)
async def test_a_tool_loop_stays_with_its_model_when_hints_change_and_texts_come_after_the_results(
    after: list[Wire],
) -> None:
    models = Models([says("other"), calling("call_1", "call_2")])
    await models(request(tools=[ADD], modelPreferences=hints("caller")))

    again = models.choose(with_results("call_1", "call_2", after=after, preferences=hints("other")))

    assert again.why == "caller: it made the tool calls whose results are here"


@pytest.mark.parametrize(
    ("allowed", "kind"), [("gpt-mini", "str"), (None, "NoneType"), ([SMALL], "Model")], ids=["a text", "None", "models"]
)
def test_what_allow_returns_is_a_list_of_names(allowed: Any, kind: str) -> None:
    models = Models([SMALL], allow=lambda request: allowed)

    with pytest.raises(TypeError, match=f"^allow has to return a list of names, not {kind}$"):
        models.choose(request())


async def test_a_tool_loop_leaves_a_model_that_is_no_longer_allowed() -> None:
    allowed = ["other", "caller"]
    models = Models([says("other"), calling("call_1")], allow=lambda request: allowed)
    await models(request(tools=[ADD], modelPreferences=hints("caller")))
    allowed.remove("caller")

    assert models.choose(with_results("call_1")).model.name == "other"


async def test_the_calls_of_another_server_or_an_earlier_turn_bind_no_request() -> None:
    """Nor do those of another connection, even of a server of the same name."""
    models, session = Models([says("other"), calling("call_1")]), object()
    await models(request(tools=[ADD], session=session, modelPreferences=hints("caller")))
    earlier = with_results("call_1", session=session, after=[assistant(text("3")), user(text("now"))])
    others = [
        with_results("call_1", session=session, server="another"),
        with_results("call_1", session=object()),
        earlier,
        with_results("call_7", session=session),
    ]

    assert [models.choose(other).model.name for other in others] == ["other"] * 4
    assert models.choose(with_results("call_1", session=session)).model.name == "caller"


async def test_the_oldest_of_4096_tool_calls_is_forgotten() -> None:
    models = Models([says("other"), calling(*(f"call_{number}" for number in range(4097)))])
    await models(request(tools=[ADD], modelPreferences=hints("caller")))

    assert models.choose(with_results("call_0")).model.name == "other"
    assert models.choose(with_results("call_1")).model.name == "caller"


def test_what_is_no_list_of_models_is_an_error_at_once(subtests: pytest.Subtests) -> None:
    table: list[tuple[object, type[Exception], str]] = [
        (lambda: Models([]), ValueError, r"^Models needs a model: Models\(\[Model\(handler, name=\.\.\.\), \.\.\.\]\)$"),
        (lambda: Models([SMALL, SMALL]), ValueError, r"^two models have the same name: claude-haiku-5, claude-haiku-5$"),
        (lambda: Model(never, name="m", cost=1.5), ValueError, r"^cost of m must be from 0 to 1, not 1\.5$"),
        (lambda: Model(never, name="m", speed=float("nan")), ValueError, r"^speed of m must be from 0 to 1, not nan$"),
        (lambda: Model(never, name=""), ValueError, r"^name must be a text, and aliases a list .*: '', \(\)$"),
        (lambda: Model(never, name="m", aliases="gpt"), ValueError, r"^name must be a text, .*: 'm', 'gpt'$"),
        (lambda: Models([Model("m", name="m")]), TypeError, r"^the handler of m has to be a function"),  # type: ignore[arg-type]  # the test
        (lambda: Models([never]), TypeError, r"^Models takes a list of Model, such as Models\(.*\), not function$"),  # type: ignore[list-item]  # as above
        (lambda: Models(SMALL), TypeError, r"^Models takes a list of Model, such as Models\(.*\), not Model$"),  # type: ignore[arg-type]  # as above
        (lambda: Models("m"), TypeError, r"^Models takes a list of Model, such as Models\(.*\), not str$"),  # type: ignore[arg-type]  # as above
        (lambda: Models([SMALL], allow=["m"]), TypeError, r"^allow has to be a plain function, not list$"),  # type: ignore[arg-type]  # as above
    ]  # fmt: skip  # one case on each line
    for make, error, says in table:
        with subtests.test(says):
            assert callable(make)
            with pytest.raises(error, match=says):
                make()


def failing(name: str, *, status: int = 529) -> Model:
    """A model whose provider answers with this status."""

    async def fail(request: SamplingRequest) -> str:
        raise ProviderError("anthropic", "OverloadedError", status=status)

    return Model(fail, name=name)


async def test_with_fallback_the_next_best_model_answers_where_a_provider_fails_for_the_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = Models([failing("first"), says("third"), failing("second")], fallback=True)
    asked = request(modelPreferences={**hints("first", "second"), "costPriority": 1})

    with caplog.at_level(logging.WARNING, logger="mcp_host.providers.choice"):
        answer = await models(asked)

    assert answer.model == "third"
    assert caplog.messages == [
        "sampling for calculator: first failed, so the next model is asked: anthropic: OverloadedError (HTTP 529)",
        "sampling for calculator: second failed, so the next model is asked: anthropic: OverloadedError (HTTP 529)",
    ]


@pytest.mark.parametrize(
    "models",
    [
        Models([failing("first"), says("second")]),
        Models([failing("first", status=401), says("second")], fallback=True),
        Models([failing("first"), failing("second")], fallback=True),
    ],
    ids=["no fallback", "no transient failure", "no model left"],
)
async def test_a_failure_without_another_model_to_ask_is_raised(models: Models) -> None:
    with pytest.raises(ProviderError):
        await models(request())


@pytest.mark.parametrize("after", [[], [user(text("go on"))]], ids=["results", "a text after the results"])
async def test_a_tool_loop_does_not_fall_back_to_a_model_that_did_not_make_the_calls(after: list[Wire]) -> None:
    async def call_then_fail(request: SamplingRequest) -> CreateMessageResult:
        if len(request.messages) > 1:
            raise ProviderError("anthropic", "OverloadedError", status=529)
        return called("call_1")

    models = Models([Model(call_then_fail, name="caller"), says("other")], fallback=True)
    await models(request(tools=[ADD]))

    with pytest.raises(ProviderError):
        await models(with_results("call_1", after=after))


async def test_a_tool_loop_stays_with_the_model_that_a_fallback_has_chosen() -> None:
    models = Models([failing("first"), calling("call_1")], fallback=True)
    await models(request(tools=[ADD]))

    assert models.choose(with_results("call_1")).model.name == "caller"
