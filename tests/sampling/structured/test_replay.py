"""Functions that ask, run again for each round of answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import pytest
from anyio import CancelScope, from_thread, to_thread
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.protocol.jsonrpc import Params
from mcp_host.sampling.structured.replay import Questions, Replay, ReplayError
from tests.extent import on_both, saturated

pytestmark = on_both
asyncio_only = pytest.mark.backends("asyncio")

Body: TypeAlias = Callable[[Replay], Awaitable[object]]


def question(text: str) -> Params:
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 10}


def answer(text: str) -> Params:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


async def ask(replay: Replay, text: str) -> str:
    reply = await replay.create_message(question(text))
    said: str = reply["content"]["text"]
    return said


def asked(questions: Questions) -> dict[str, str]:
    return {name: params["messages"][0]["content"]["text"] for name, params in questions.requests.items()}


async def next_round(body: Body, before: Questions | None = None, answers: dict[str, Params] | None = None) -> object:
    """What *body* asks or returns, once it has *answers* to the questions of the round before."""
    replay = Replay.read(None if before is None else before.state, answers or {})
    return await replay.run(lambda: body(replay))


async def questions(body: Body, before: Questions | None = None, answers: dict[str, Params] | None = None) -> Questions:
    outcome = await next_round(body, before, answers)
    assert isinstance(outcome, Questions)
    return outcome


class Client:
    """Answers each question with its text in capitals and how often it was asked; notes what was asked in each round."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self.count = 0

    async def call(self, body: Body) -> object:
        before: Questions | None = None
        answers: dict[str, Params] = {}
        with anyio.fail_after(30):
            while isinstance(outcome := await next_round(body, before, answers), Questions):
                self.rounds.append(sorted(asked(outcome).values()))
                before, answers = outcome, {}
                for name, text in asked(outcome).items():
                    self.count += 1
                    answers[name] = answer(f"{text.upper()} {self.count}")
        return outcome


async def test_each_question_is_asked_once_and_the_function_goes_on_where_it_was() -> None:
    started: list[int] = []

    async def body(replay: Replay) -> list[str]:
        started.append(len(started))
        first = await ask(replay, "a")
        return [first, await ask(replay, first), await ask(replay, "c")]

    client = Client()

    assert await client.call(body) == ["A 1", "A 1 2", "C 3"]
    assert client.rounds == [["a"], ["A 1"], ["c"]]
    assert started == [0, 1, 2, 3]


async def test_what_is_asked_at_the_same_time_goes_into_one_round() -> None:
    async def body(replay: Replay) -> dict[str, str]:
        said = {}

        async def one(text: str) -> None:
            said[text] = await ask(replay, text)
            said[text + text] = await ask(replay, text + text)

        async with anyio.create_task_group() as tasks:
            for text in "abc":
                tasks.start_soon(one, text)
        return {text: words.split()[0] for text, words in said.items()}

    client = Client()

    assert await client.call(body) == {"a": "A", "b": "B", "c": "C", "aa": "AA", "bb": "BB", "cc": "CC"}
    assert client.rounds == [["a", "b", "c"], ["aa", "bb", "cc"]]


async def test_a_function_that_asks_something_else_each_time_is_stopped_before_answers_are_mixed() -> None:
    texts = iter(["one", "two", "three"])

    async def body(replay: Replay) -> str:
        return await ask(replay, next(texts))

    client = Client()

    with pytest.raises(ReplayError, match="asked something else this time"):
        await client.call(body)
    assert client.rounds == [["one"]]


@asyncio_only
async def test_a_function_that_asks_some_of_it_again_goes_on() -> None:
    runs = iter([["same", "same"], ["same", "other"]])

    async def body(replay: Replay) -> None:
        async with anyio.create_task_group() as tasks:
            for text in next(runs):
                tasks.start_soon(ask, replay, text)

    both = await questions(body)
    rest = await questions(body, both, {name: answer("yes") for name in both.requests})

    assert list(asked(rest).values()) == ["other"]


async def test_a_function_may_stop_asking() -> None:
    """What it did not ask again is not needed."""
    texts = iter(["one", None])

    async def body(replay: Replay) -> str:
        text = next(texts)
        return "done" if text is None else await ask(replay, text)

    assert await Client().call(body) == "done"


async def test_what_the_client_did_not_answer_is_asked_again() -> None:
    async def body(replay: Replay) -> list[str]:
        said: list[str] = ["", ""]

        async def one(index: int) -> None:
            said[index] = await ask(replay, f"q{index}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, 0)
            tasks.start_soon(one, 1)
        return said

    with anyio.fail_after(25):
        both = await questions(body, None, {"sampling-1": answer("not asked for")})
        [(name, kept), (_, missing)] = asked(both).items()
        rest = await questions(body, both, {name: answer("one of them"), "unknown": answer("of another round")})
        assert list(asked(rest).values()) == [missing]
        said = await next_round(body, rest, {name: answer("the other") for name in rest.requests})

    expected = {kept: "one of them", missing: "the other"}
    assert said == [expected["q0"], expected["q1"]]


@asyncio_only
async def test_one_answer_is_not_given_to_two_equal_questions() -> None:
    said: list[str] = []

    async def body(replay: Replay) -> None:
        async def one() -> None:
            said.append(await ask(replay, "again"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(one)

    both = await questions(body)
    rest = await questions(body, both, {"sampling-1": answer("only one")})

    assert (list(asked(rest).values()), said) == (["again"], ["only one"])


async def test_what_once_returned_is_not_done_again() -> None:
    """What the function does with a value changes no record."""
    rolled = []

    async def body(replay: Replay) -> list[object]:
        async def roll() -> dict[str, int]:
            rolled.append(random.randrange(10**9))
            return {"eyes": rolled[-1]}

        first = (await replay.once("roll", roll)).pop("eyes")
        said = await ask(replay, str(first))
        second = await replay.once("roll", roll)
        await ask(replay, "ready?")
        return [first, said.split()[0], second.pop("eyes")]

    result = await Client().call(body)

    assert result == [rolled[0], str(rolled[0]), rolled[1]]
    assert len(rolled) == 2


async def test_once_returns_the_same_json_value_the_first_time_with_its_members_in_order() -> None:
    async def members() -> dict[str, object]:
        return {"b": (1, 2), "a": 2}

    value = await next_round(lambda replay: replay.once("members", members))

    assert json.dumps(value) == '{"b": [1, 2], "a": 2}'


async def test_once_refuses_what_is_no_json() -> None:
    async def unknown() -> object:
        return object()

    with pytest.raises(TypeError, match="object"):
        await next_round(lambda replay: replay.once("unknown", unknown))


async def test_what_was_recorded_inside_of_once_does_not_travel_on() -> None:
    async def body(replay: Replay) -> None:
        async def twice() -> str:
            return await ask(replay, "first?") + await ask(replay, "second?")

        await replay.once("both", twice)
        await ask(replay, "third?")

    first = await questions(body)
    second = await questions(body, first, {name: answer("yes") for name in first.requests})
    third = await questions(body, second, {name: answer("yes") for name in second.requests})

    [[path, _, value]] = json.loads(third.state)["recorded"]
    assert (path, value) == ("", "yesyes")


@pytest.mark.backends("trio")
async def test_on_trio_tasks_that_cannot_be_told_apart_are_an_error() -> None:
    async def body(replay: Replay) -> str:
        async def swallow() -> None:
            with contextlib.suppress(ReplayError):
                await ask(replay, "again")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(swallow)
            tasks.start_soon(swallow)
        return "wrong"

    with pytest.raises(ReplayError, match=r"^two tasks do the same at the same time: trio runs tasks in any order"):
        await Client().call(body)


@pytest.mark.backends("trio")
async def test_a_function_that_goes_on_after_such_an_error_has_no_result() -> None:
    async def word() -> str:
        return "word"

    async def body(replay: Replay) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replay.once, "word", word)
        with contextlib.suppress(ReplayError):
            await replay.once("word", word)
        return "wrong"

    with pytest.raises(ReplayError, match=r"^two tasks do the same at the same time"):
        await Client().call(body)


@asyncio_only
async def test_once_in_parallel_tasks_is_told_apart_by_the_order_of_the_calls() -> None:
    """Not of the ends."""

    async def body(replay: Replay) -> dict[str, str]:
        numbers: dict[str, str] = {}
        bob_is_done = anyio.Event()

        async def number(name: str) -> str:
            if name == "alice":
                await bob_is_done.wait()
            return f"number of {name}"

        async def task(name: str, task_status: anyio.abc.TaskStatus[None]) -> None:
            task_status.started()
            numbers[name] = await replay.once("number", lambda: number(name))
            bob_is_done.set()

        async with anyio.create_task_group() as tasks:
            for name in ("alice", "bob"):
                await tasks.start(task, name)
        await ask(replay, "go on?")
        return numbers

    assert await Client().call(body) == {"alice": "number of alice", "bob": "number of bob"}


@pytest.mark.fake_clock
async def test_once_beside_a_question_runs_to_its_end_first() -> None:
    begun: list[str] = []

    async def body(replay: Replay) -> list[str]:
        said: list[str] = []

        async def charge() -> str:
            begun.append("charge")
            await anyio.sleep(0.05)
            return "charged"

        async def pay() -> None:
            said.append(await replay.once("charge", charge))
            said.append(await ask(replay, "paid?"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pay)
            said.append(await ask(replay, "beside?"))
        return sorted(text.split()[0] for text in said)

    client = Client()

    assert await client.call(body) == ["BESIDE?", "PAID?", "charged"]
    assert (begun, client.rounds) == (["charge"], [["beside?", "paid?"]])


async def test_once_that_asks_itself_is_not_waited_for() -> None:
    async def body(replay: Replay) -> str:
        said: list[str] = []

        async def asks() -> str:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(waits)
                said.append(await ask(replay, "inside?"))
                answered.set()
            return "ended"

        async def waits() -> None:
            await answered.wait()

        answered = anyio.Event()
        return f"{await replay.once('asks', asks)} {said}"

    assert await Client().call(body) == "ended ['INSIDE? 1']"


async def test_once_that_does_not_end_beside_a_question_is_an_error() -> None:
    async def body(replay: Replay) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replay.once, "once('wait')", anyio.sleep_forever)
            await ask(replay, "hm?")

    replay = Replay(patience=0.01)

    with (
        pytest.raises(ReplayError, match=r"^once\('wait'\) did not end in 0\.01 s beside a question"),
        anyio.fail_after(25),
    ):
        await replay.run(lambda: body(replay))


async def test_once_that_raises_is_called_again_with_the_answers_that_it_had() -> None:
    failed: list[str] = []

    async def body(replay: Replay) -> str:
        async def fails() -> None:
            failed.append(await ask(replay, "inside?"))
            raise LookupError

        try:
            await replay.once("fails", fails)
        except LookupError:
            return await ask(replay, "after?")
        return "not reached"

    client = Client()

    assert await client.call(body) == "AFTER? 2"
    assert (failed, client.rounds) == (["INSIDE? 1", "INSIDE? 1"], [["inside?"], ["after?"]])


async def test_the_end_of_a_round_is_a_cancellation() -> None:
    """So `except Exception` does not see it, a timeout of the function does not catch it, and its `finally` runs."""
    seen = []

    async def body(replay: Replay) -> str:
        try:
            with anyio.move_on_after(60):
                return await ask(replay, "a")
            seen.append("moved on")
        except Exception:
            seen.append("caught")
        finally:
            seen.append("left")
        return "after"

    assert await Client().call(body) == "A 1"
    assert seen == ["left", "left"]


@asyncio_only
@pytest.mark.parametrize("way", ["gather", "wait", "as_completed", "TaskGroup", "wait_for", "thread"])
async def test_no_way_of_asyncio_to_ask_hangs_or_leaves_a_task(way: str) -> None:
    async def body(replay: Replay) -> set[str]:
        async def one(text: str) -> str:
            return (await ask(replay, text))[0]

        match way:
            case "gather":
                return set(await asyncio.gather(one("a"), one("b")))
            case "wait":
                done, _ = await asyncio.wait([asyncio.create_task(one("a")), asyncio.create_task(one("b"))])
                return {task.result() for task in done}
            case "as_completed":
                return {await each for each in asyncio.as_completed([one("a"), one("b")])}
            case "TaskGroup":
                async with asyncio.TaskGroup() as tasks:
                    both = [tasks.create_task(one("a")), tasks.create_task(one("b"))]
                return {task.result() for task in both}
            case "wait_for":
                return {await asyncio.wait_for(one("a"), 60), await asyncio.wait_for(one("b"), 60)}
        return {await to_thread.run_sync(from_thread.run, one, text) for text in "ab"}

    before = asyncio.all_tasks()

    assert await Client().call(body) == {"A", "B"}
    assert asyncio.all_tasks() == before


async def test_a_question_inside_of_a_shield_is_an_error() -> None:
    async def body(replay: Replay) -> None:
        with CancelScope(shield=True):
            await ask(replay, "a")

    with pytest.raises(ReplayError, match=r"^a question cannot be asked inside of a shield$"):
        await Client().call(body)


async def test_a_function_that_does_not_wait_for_its_question_keeps_its_result() -> None:
    async def body(replay: Replay) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, replay, "slow?")
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        return "fast"

    client = Client()

    assert (await client.call(body), client.rounds) == ("fast", [])


async def test_cancellation_from_outside_ends_the_round_without_a_result() -> None:
    replay = Replay()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await replay.run(anyio.sleep_forever)

    assert scope.cancelled_caught


async def test_what_the_function_raises_is_raised() -> None:
    async def body(replay: Replay) -> None:
        raise LookupError(await ask(replay, "a"))

    with pytest.raises(LookupError, match="A 1"):
        await Client().call(body)


STATES_OF_OTHERS: list[str] = [
    *("", "{", "[]", "7", '"text"', "{}", '{"version": 1, "recorded": [], "asked": {}}'),
    *('{"version": 2}', '{"version": 2, "recorded": 7, "asked": {}}', '{"version": 2, "recorded": [], "asked": []}'),
    *('{"version": 2, "recorded": [["one", "two"]], "asked": {}}', "[" * 100_000),
    '{"version": 2, "recorded": [], "asked": {"sampling-1": "key"}}',
]


def test_a_state_of_others_is_refused(subtests: pytest.Subtests) -> None:
    for state in STATES_OF_OTHERS:
        with (
            subtests.test(state=state),
            pytest.raises(ReplayError, match="the requestState is not one that this tool has written"),
        ):
            Replay.read(state, {})


async def test_answers_that_are_too_large_for_a_state_are_refused() -> None:
    async def body(replay: Replay) -> None:
        await replay.create_message(question("long?"))
        await replay.create_message(question("more?"))

    one = await questions(body)

    with pytest.raises(ReplayError, match=r"the answers so far take 1,048,\d\d\d characters"):
        await questions(body, one, {"sampling-1": answer("x" * 2**20)})


async def test_any_json_that_python_reads_survives_a_state() -> None:
    odd = {"lone": "\ud800", "big": 2**80, "nested": [None, {"": 1.5}]}

    async def body(replay: Replay) -> Params:
        first = await replay.create_message(question("odd?"))
        await replay.create_message(question("more?"))
        return first

    one = await questions(body)
    two = await questions(body, one, {"sampling-1": odd})

    assert await next_round(body, two, {"sampling-2": answer("")}) == odd
    assert json.loads(two.state)["asked"].keys() == {"sampling-2"}


Program: TypeAlias = Any
"""A question; or a list of programs, in turn; or a tuple of them, at the same time; or a dict: one inside of `once`."""
Once: TypeAlias = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
PROGRAMS = st.recursive(
    st.sampled_from("ab"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.fixed_dictionaries({"once": inner, "slow": st.integers(0, 40)})
    ),
    max_leaves=8,
)


async def follow(program: Program, ask: Callable[[str], Awaitable[str]], once: Once, path: str | None) -> Any:
    """The answers, in the shape of the *program*. With *path* the texts and names say where they are."""

    def at(step: object) -> str | None:
        return None if path is None else f"{path}{step}"

    match program:
        case str():
            return await ask(program + (path or ""))
        case list():
            said: list[Any] = []
            for index, step in enumerate(program):
                said.append(await follow(step, ask, once, at(index)))
            return said
        case {"once": inner, "slow": passes}:

            async def body() -> Any:
                for _ in range(passes):
                    await anyio.lowlevel.checkpoint()
                return [await follow(inner, ask, once, at("o"))]

            return await once(f"once{path or ''}", body)
    results: dict[int, Any] = {}

    async def one(index: int) -> None:
        results[index] = await follow(program[index], ask, once, at(index))

    async with anyio.create_task_group() as tasks:
        for index in range(len(program)):
            tasks.start_soon(one, index)
    return [results[index] for index in range(len(program))]


def leaves(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [leaf for each in value for leaf in leaves(each)]


def questions_of(program: Program) -> list[str]:
    if isinstance(program, dict):
        return questions_of(program["once"])
    return [program] if isinstance(program, str) else [leaf for each in program for leaf in questions_of(each)]


@saturated
@given(program=PROGRAMS)
async def test_any_function_ends_as_if_it_had_never_been_interrupted(program: Program) -> None:
    await check_that_replays_do_not_show(program, "")


@asyncio_only
@saturated
@given(program=PROGRAMS)
async def test_so_does_one_whose_questions_and_names_are_all_equal(program: Program) -> None:
    await check_that_replays_do_not_show(program, None)


async def check_that_replays_do_not_show(program: Program, path: str | None) -> None:
    """Each question has an answer of its own, and what has ended, ends once, with what the whole then shows."""
    client = Client()
    ended: list[Any] = []

    async def body(replay: Replay) -> Any:
        async def once(name: str, function: Callable[[], Awaitable[Any]]) -> Any:
            async def noted() -> Any:
                ended.append(await function())
                return ended[-1]

            return await replay.once(name, noted)

        return await follow(program, lambda text: ask(replay, text), once, path)

    replayed = await client.call(body)

    async def at_once(text: str) -> str:
        return text.upper()

    async def call(name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        return await function()

    def texts(value: Any) -> Any:
        return value.split()[0] if isinstance(value, str) else [texts(each) for each in value]

    assert texts(replayed) == await follow(program, at_once, call, path)
    numbers = sorted(int(said.split()[1]) for said in leaves(replayed))
    assert numbers == list(range(1, len(questions_of(program)) + 1))
    assert client.count == len(numbers)
    expected = spans(program, replayed)
    assert sorted(map(repr, ended)) == sorted(map(repr, expected))


def spans(program: Program, value: Any) -> list[Any]:
    """What each `once` in the *program* returned, as *value* has it."""
    match program:
        case str():
            return []
        case {"once": inner}:
            return [value, *spans(inner, value[0])]
    return [span for step, part in zip(program, value, strict=True) for span in spans(step, part)]
