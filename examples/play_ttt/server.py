"""The server: its tool plays a whole game with the host's model and the person in front of the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import choice
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field, field_validator

from mcp_host.testing import Context, NotDeclared, Server, ToolError
from mcp_host.types import SamplingMessage, UserMessage
from play_ttt.rules import MARKS, Board, Mark, listed, opponent

ATTEMPTS = 3  # to make a legal move
LONGEST_THOUGHT = 3600.0  # seconds that the client may take for one answer

SYSTEM_PROMPT = (
    "You play tic-tac-toe against a person. The squares are numbered from 1 to 9; a taken one shows its mark."
)

Stop: TypeAlias = Literal["forfeit", "decline", "cancel"]


@dataclass(frozen=True)
class Game:
    """A game of the model against the person: where it stands, and what the person has not heard yet."""

    model: Mark
    board: Board = field(default_factory=Board)
    news: str = "You begin."
    stopped: Stop | None = None

    @property
    def person(self) -> Mark:
        """What the person plays."""
        return opponent(self.model)

    @property
    def outcome(self) -> Mark | Literal["draw"] | Stop | None:
        """The winner, or how else the game has ended. None while it goes on."""
        return self.stopped or self.board.result


def draw_mark() -> Mark:
    """X or O, at random."""
    return choice(MARKS)


def make_server(draw: Callable[[], Mark] = draw_mark) -> Server:
    """A server with the tool `play_ttt`. *draw* decides what the model plays, anew for each game."""
    server = Server("tic-tac-toe", resume_timeout=LONGEST_THOUGHT)

    @server.tool
    async def play_ttt(context: Context) -> str:
        """Let the user play a game of tic-tac-toe against your model. Returns how it ended."""
        game = before(draw(), context)
        game = await play(game, context)
        return after(game)

    return server


# Before the game: on the server


def before(model: Mark, context: Context) -> Game:
    """A new game, if the client can play one.

    Raises:
        NotDeclared: It has no model, or no forms for a person.
    """
    if context.client_capabilities.sampling is None:
        raise NotDeclared("sampling")
    if context.client_capabilities.elicitation is None:
        raise NotDeclared("elicitation")
    return Game(model)


# The game: on the client's side


async def play(game: Game, context: Context) -> Game:
    """Let the model and the person move in turn until the game has an outcome."""
    while game.outcome is None:
        move = ask_model if game.board.turn == game.model else ask_person
        game = await move(game, context)
    return game


async def ask_model(game: Game, context: Context) -> Game:
    """Let the model move. If none of its attempts is legal it forfeits: a move made up here would not be the model's."""

    class Move(BaseModel):  # here, because its rule depends on the board
        """The square that you take."""

        square: int = Field(description="The number of a free square.", ge=1, le=9)
        remark: str = Field("", description="A few words for your opponent.", max_length=100)

        @field_validator("square")
        @classmethod
        def is_legal(cls, square: int) -> int:
            game.board.take(square)  # an IllegalMove says what is wrong, and the model reads it
            return square

    answer = await context.sample(
        messages=await ask_strategy(game, context),
        schema=Move,
        retries=ATTEMPTS - 1,
        system_prompt=SYSTEM_PROMPT,
    )
    if answer.parse_error is not None:
        return replace(game, stopped="forfeit", news=answer.parse_error.message)
    move = answer.parsed
    remark = " ".join(move.remark.split())  # on one line, as it is shown above the board
    news = f"The model took {move.square}" + (f" and says: {remark}" if remark else ".")
    return replace(game, board=game.board.take(move.square), news=news)


async def ask_strategy(game: Game, context: Context) -> list[SamplingMessage]:
    """Let the model choose a strategy. Returns the conversation, with what the strategy tells the model."""
    prompt = f"{game.board}\n\nYou are {game.model}, and it is your turn."

    def play_offensive() -> str:
        """Play to win: see the squares that complete your line."""
        return f"You win at once with: {listed(game.board.winning(game.model))}."

    def play_defensive() -> str:
        """Play safe: see the squares that complete your opponent's line."""
        return f"Your opponent would win with: {listed(game.board.winning(game.person))}."

    tools = [play_offensive, play_defensive]
    try:
        answer = await context.sample(prompt, tools=tools, tool_choice="required", system_prompt=SYSTEM_PROMPT)
    except NotDeclared:
        return [UserMessage(prompt)]  # this model takes no tools, and plays without a strategy
    advice = {tool.__name__: tool() for tool in tools}
    return answer.answered({call: advice.get(call.name, "There is no such strategy.") for call in answer.tool_calls})


async def ask_person(game: Game, context: Context) -> Game:
    """Let the person move, in a form with the free squares. A person who declines or closes it ends the game."""
    free = [str(square) for square in game.board.free]
    form = {
        "type": "object",
        "properties": {"square": {"type": "string", "title": "Your square", "enum": free}},
        "required": ["square"],
    }
    answer = await context.elicit(f"You are {game.person}. {game.news}\n\n{game.board}", form)
    if answer.action != "accept":
        return replace(game, stopped=answer.action)
    square = (answer.content or {}).get("square")
    if square not in free:  # not every client checks what its user enters
        raise ToolError(f"the form offers the squares {', '.join(free)}, and the answer is {square!r}")
    return replace(game, board=game.board.take(int(square)), news="")


# After the game: on the server


def after(game: Game) -> str:
    """The outcome in a sentence, the last move if it was the model's, and the board."""
    names = {game.model: "The model", game.person: "The person"}
    match game.outcome:
        case "X" | "O" as winner:
            how = f"{names[winner]} wins with {winner}."
        case "draw":
            how = "It is a draw."
        case "forfeit":
            how = f"The model loses, because it made no legal move. Its last attempt: {game.news}"
        case "decline":
            how = "The person declined to play on."
        case _:
            how = "The person has left the game."
    news = game.news if game.stopped is None else ""
    return "\n\n".join(filter(None, [how, news, str(game.board)]))
