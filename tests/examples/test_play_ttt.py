"""The example play_ttt: games to each of their ends, over every transport and in both eras."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import anyio
import pytest
from play_ttt.player import player
from play_ttt.rules import MARKS, Board, Mark, read_board
from play_ttt.server import make_server

from mcp_host import (
    Allow,
    Client,
    Deny,
    Elicitation,
    FormRequest,
    Sampling,
    SamplingRequest,
    Stdio,
    StreamableHttp,
    ToolCall,
    always,
)
from mcp_host.errors import InputNotGiven, MissingRequiredClientCapability
from mcp_host.testing import ScriptedModel
from mcp_host.transports.base import Transport
from mcp_host.types import CreateMessageResult, ElicitResult
from tests.extent import THOROUGH
from tests.testing.raw import Wire, legacy

EXAMPLES = Path(__file__).parents[2] / "examples"
IN_TIME = 60.0  # seconds for a child process that imports everything, on a busy machine

everywhere = pytest.mark.parametrize("how", ["in-process", "stdio", "http"])
in_both_eras = pytest.mark.parametrize(
    ("era", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")], ids=["2025-11-25", "2026-07-28"]
)


class Played(NamedTuple):
    """A game in which the model plays X: the squares that it and the person choose, and how it ends."""

    model: Sequence[int]
    person: Sequence[str]
    outcome: str
    squares: str
    unheard: str = ""
    """What the model did last, if it ended the game."""

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, [self.outcome, self.unheard, str(Board(self.squares))]))


FORFEIT = (
    "The model loses, because it made no legal move. Its last attempt: "
    "the answer does not fit the schema: square: 1 is taken; free: 2, 3, 4, 6, 7, 8, 9"
)

GAMES = {
    "win": Played([1, 2, 3], ["4", "5"], "The model wins with X.", "XXXOO6789", "The model took 3."),
    "loss": Played([1, 2, 7], ["4", "5", "6"], "The person wins with O.", "XX3OOOX89"),
    "draw": Played([1, 3, 8, 6, 7], ["2", "5", "4", "9"], "It is a draw.", "XOXOOXXXO", "The model took 7."),
    "forfeit": Played([1, 5, 10, 1], ["5"], FORFEIT, "X234O6789"),
    "decline": Played([1, 2], ["4", "decline"], "The person declined to play on.", "XX3O56789"),
    "cancel": Played([9], ["cancel"], "The person has left the game.", "12345678X"),
    "another after all that": Played([5, 1, 9], ["2", "3"], "The model wins with X.", "XOO4X678X", "The model took 9."),
}


class Model:
    """Plays the next of *squares*, with tools and without."""

    def __init__(self) -> None:
        self.squares: list[int] = []
        self.strategies = 0

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        match [tool.name for tool in request.tools]:
            case ["play_offensive", "play_defensive"]:
                assert request.must_use_tools
                self.strategies += 1
                return request.call("play_offensive")
            case []:
                return request.reply(json.dumps({"square": self.squares.pop(0)}))
            case [form]:
                assert request.must_use_tools
                return request.call(form, {"square": self.squares.pop(0)})
            case several:
                raise AssertionError(f"unexpected tools: {several}")


class Person:
    """Takes the next of *squares*, or declines or cancels. Keeps the forms."""

    def __init__(self) -> None:
        self.squares: list[str] = []
        self.forms: list[FormRequest] = []

    async def __call__(self, request: FormRequest) -> ElicitResult:
        self.forms.append(request)
        match self.squares.pop(0):
            case "decline":
                return request.decline()
            case "cancel":
                return request.cancel()
            case square:
                return request.accept(square=square)


@asynccontextmanager
async def reached(how: str, model: Mark = "X") -> AsyncIterator[Transport]:
    """The server, over one of the transports; the model plays *model*."""
    if how == "stdio":
        program = f"from play_ttt.server import make_server; make_server(lambda: {model!r}).run_stdio()"
        yield Stdio([sys.executable, "-c", program], cwd=EXAMPLES)
    elif how == "in-process":
        yield make_server(lambda: model).in_process()
    else:
        async with make_server(lambda: model).http() as url:
            yield StreamableHttp(url)


@everywhere
@in_both_eras
async def test_games_are_played_to_each_of_their_ends(how: str, era: str, version: str) -> None:
    games = list(GAMES.values()) if how == "in-process" else [GAMES["forfeit"], GAMES["cancel"], GAMES["win"]]
    model, person = Model(), Person()
    sampling, elicitation = Sampling(with_tools=model, approve=always), Elicitation(form=person)
    with anyio.fail_after(IN_TIME):
        async with (
            reached(how) as transport,
            Client(transport, era=era, sampling=sampling, elicitation=elicitation) as client,
        ):
            assert client.protocol_version == version
            for game in games:
                model.squares[:], person.squares[:] = game.model, game.person
                result = await client.call_tool("play_ttt")

                assert (result.text, result.is_error) == (game.text, None)
                assert (model.squares, person.squares) == ([], [])
    assert model.strategies == sum(len(game.model) for game in games) - 2  # two attempts more, in one turn


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_model_without_tools_plays_without_a_strategy(era: str) -> None:
    model, person = Model(), Person()
    sampling, elicitation = Sampling(basic=model, approve=always), Elicitation(form=person)
    with anyio.fail_after(IN_TIME):
        async with Client(make_server(lambda: "X"), era=era, sampling=sampling, elicitation=elicitation) as client:
            for game in GAMES.values():
                model.squares[:], person.squares[:] = game.model, game.person
                result = await client.call_tool("play_ttt")

                assert result.text == game.text
    assert model.strategies == 0


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_model_that_writes_in_place_of_calling_plays_on_and_forfeits_in_the_end(era: str) -> None:
    turns = ["I attack.", '{"square": 5}', "I attack.", "The corner.", "Here: {}", "I resign."]
    model, person = ScriptedModel(*turns), Person()
    person.squares = ["2"]
    sampling, elicitation = Sampling(with_tools=model, approve=always), Elicitation(form=person)
    with anyio.fail_after(IN_TIME):
        async with Client(make_server(lambda: "X"), era=era, sampling=sampling, elicitation=elicitation) as client:
            result = await client.call_tool("play_ttt")

    assert result.text.startswith(
        "The model loses, because it made no legal move. Its last attempt: the answer is not JSON"
    )
    assert result.text.endswith(str(Board("1O34X6789")))


async def played(model: Mark, *squares: str) -> tuple[str, list[FormRequest]]:
    """How a game against the example's player ends in which the person chooses *squares*, and the forms that they see."""
    person = Person()
    person.squares = list(squares)
    sampling, elicitation = Sampling(with_tools=player, approve=always), Elicitation(form=person)
    async with Client(make_server(lambda: model), sampling=sampling, elicitation=elicitation) as client:
        with anyio.fail_after(IN_TIME):
            return (await client.call_tool("play_ttt")).text, person.forms


async def test_the_person_who_begins_sees_the_board_and_the_free_squares() -> None:
    text, (first, second, third, _) = await played("O", "5", "1", "4", "7")

    assert first.message == f"You are X. You begin.\n\n{Board()}"
    assert second.message == f"You are X. The model took 2 and says: Your move.\n\n{Board('1O34X6789')}"
    assert third.requested_schema == {
        "type": "object",
        "properties": {"square": {"type": "string", "title": "Your square", "enum": ["3", "4", "6", "7", "8"]}},
        "required": ["square"],
    }
    assert text == f"The person wins with X.\n\n{Board('XO3XXOX8O')}"


async def test_the_last_move_of_the_model_is_shown_with_its_remark() -> None:
    won, _ = await played("X", "1", "8", "3")
    drawn, _ = await played("X", "2", "6", "1", "7")

    assert won == f"The model wins with X.\n\nThe model took 6 and says: Three in a row!\n\n{Board('OXOXXX7O9')}"
    assert drawn == f"It is a draw.\n\nThe model took 9 and says: A draw, then.\n\n{Board('OOXXXOOXX')}"


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_games_at_random_end_after_a_bounded_number_of_questions(era: str) -> None:
    chance = Random(12)
    asked = 0

    async def model(request: SamplingRequest) -> CreateMessageResult:
        nonlocal asked
        asked += 1
        names = [tool.name for tool in request.tools]
        if len(names) == 2:
            return request.calls(*[ToolCall(name) for name in chance.sample(names, chance.randint(1, 2))])
        return request.call(names[0], {"square": chance.randint(-1, 11)})

    async def person(request: FormRequest) -> ElicitResult:
        nonlocal asked
        asked += 1
        board = read_board(request.message)
        assert board is not None
        return chance.choices([request.accept(square=f"{chance.choice(board.free)}"), request.cancel()], [20, 1])[0]

    outcomes: set[str] = set()
    sampling, elicitation = Sampling(with_tools=model, approve=always), Elicitation(form=person)
    with anyio.fail_after(IN_TIME):
        async with Client(
            make_server(lambda: chance.choice(MARKS)), era=era, sampling=sampling, elicitation=elicitation
        ) as client:
            games = 0
            while games < MOST_GAMES and (THOROUGH or outcomes != ENDS):
                games += 1
                asked = 0
                result = await client.call_tool("play_ttt")
                outcome, _, shown = result.text.partition("\n\n")
                board = read_board(shown)
                assert board is not None
                assert asked <= 5 * 4 + 4  # a strategy and three attempts for each of five moves, and four forms
                assert BY_THE_RULES.get(outcome) == board.result
                outcomes.add(outcome.partition(":")[0])
    assert outcomes == ENDS


BY_THE_RULES = {
    "The model wins with X.": "X",
    "The model wins with O.": "O",
    "The person wins with X.": "X",
    "The person wins with O.": "O",
    "It is a draw.": "draw",
}
FORFEITED, LEFT = "The model loses, because it made no legal move. Its last attempt", "The person has left the game."
ENDS = {*BY_THE_RULES, FORFEITED, LEFT}
MOST_GAMES = 100


async def test_a_host_that_refuses_its_model_ends_the_game_with_the_reason() -> None:
    def approve(request: SamplingRequest) -> Allow | Deny:
        return Deny("no games at work")

    sampling, elicitation = Sampling(with_tools=player, approve=approve), Elicitation(form=Person())
    with anyio.fail_after(IN_TIME):
        async with Client(make_server(lambda: "X"), era="legacy", sampling=sampling, elicitation=elicitation) as client:
            result = await client.call_tool("play_ttt")
        async with Client(make_server(lambda: "X"), sampling=sampling, elicitation=elicitation) as client:
            with pytest.raises(InputNotGiven, match="no games at work"):
                await client.call_tool("play_ttt")
    assert (result.text, result.is_error) == ("the client refused sampling/createMessage: no games at work (-1)", True)


async def test_one_turn_of_the_model_and_one_of_the_person_message_by_message() -> None:
    """With a host that checks neither what its model calls nor what its user enters."""
    with anyio.fail_after(IN_TIME):
        async with legacy(make_server(lambda: "X")) as raw:
            await raw.start("play_ttt")

            strategy = await raw.receive()
            assert strategy["params"]["messages"] == [user(f"{Board()}\n\nYou are X, and it is your turn.")]
            assert strategy["params"]["toolChoice"] == {"mode": "required"}
            assert [tool["name"] for tool in strategy["params"]["tools"]] == ["play_offensive", "play_defensive"]
            await raw.reply(strategy, calls(("a", "play_offensive", {}), ("b", "play_dead", {})))

            move = await raw.receive()
            assert move["params"]["toolChoice"] == {"mode": "required"}
            assert [told(result) for result in move["params"]["messages"][-1]["content"]] == [
                "You win at once with: none.",
                "There is no such strategy.",
            ]
            (form,) = move["params"]["tools"]
            await raw.reply(move, calls(("c", form["name"], {"square": 5, "remark": "The middle,\nof course."})))

            board = Board().take(5)
            first = await raw.receive()
            assert (
                first["params"]["message"] == f"You are O. The model took 5 and says: The middle, of course.\n\n{board}"
            )
            await raw.reply(first, {"action": "accept", "content": {"square": "1"}})

            await raw.reply(await raw.receive(), calls(("d", "play_defensive", {})))
            move = await raw.receive()
            assert told(move["params"]["messages"][-1]["content"]) == "Your opponent would win with: none."
            await raw.reply(move, calls(("e", form["name"], {"square": 1})))
            again = await raw.receive()
            assert told(again["params"]["messages"][-1]["content"]) == (
                "the answer does not fit the schema: square: 1 is taken; free: 2, 3, 4, 6, 7, 8, 9"
            )
            await raw.reply(again, calls(("f", form["name"], {"square": 0})))
            again = await raw.receive()
            assert told(again["params"]["messages"][-1]["content"]) == (
                "the answer does not fit the schema: square: Input should be greater than or equal to 1"
            )
            await raw.reply(again, calls(("g", form["name"], {"square": 9})))

            second = await raw.receive()
            assert second["params"]["message"] == f"You are O. The model took 9.\n\n{board.take(1).take(9)}"
            await raw.reply(second, {"action": "accept", "content": {"square": "9"}})

            result = (await raw.receive())["result"]
    assert result == {
        "content": [{"type": "text", "text": "the form offers the squares 2, 3, 4, 6, 7, 8, and the answer is '9'"}],
        "isError": True,
    }


def user(text: str) -> Wire:
    return {"role": "user", "content": {"type": "text", "text": text}}


def calls(*uses: tuple[str, str, Wire]) -> Wire:
    """The answer of a model that calls tools."""
    content = [{"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in uses]
    return {"role": "assistant", "content": content, "model": "m", "stopReason": "toolUse"}


def told(result: Wire | list[Wire]) -> str:
    """What the result of a tool call tells the model."""
    block = result[0] if isinstance(result, list) else result
    text: str = block["content"][0]["text"]
    return text


async def test_what_the_client_cannot_do_is_said_before_a_model_or_a_person_is_asked() -> None:
    model, person = ScriptedModel(), Person()
    with anyio.fail_after(IN_TIME):
        async with Client(make_server(lambda: "O"), elicitation=Elicitation(form=person)) as client:
            with pytest.raises(MissingRequiredClientCapability, match="sampling"):
                await client.call_tool("play_ttt")
        async with Client(make_server(lambda: "X"), sampling=Sampling(with_tools=model, approve=always)) as client:
            with pytest.raises(MissingRequiredClientCapability, match="elicitation"):
                await client.call_tool("play_ttt")
    assert (model.requests, person.forms) == ([], [])
