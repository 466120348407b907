"""The server: its tool plays a whole game with the host's model and the person in front of the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import choice
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from mcp_host.testing import Context, NotDeclared, Server
from mcp_host.types import SamplingMessage, TextContent, Tool, ToolResultContent
from play_ttt.rules import MARKS, Board, IllegalMove, Mark, listed, opponent

ATTEMPTS = 3  # to make a legal move
LONGEST_GAME = 3600.0  # seconds that a person may think about one move


@dataclass(frozen=True)
class Game:
    """A game of the host's model, which plays *model*, against a person. *news* is what the model did last."""

    model: Mark
    board: Board = field(default_factory=Board)
    news: str = "You begin."
    stopped: Literal["forfeit", "decline", "cancel"] | None = None

    @property
    def person(self) -> Mark:
        return opponent(self.model)

    @property
    def outcome(self) -> Mark | Literal["draw", "forfeit", "decline", "cancel"] | None:
        """The winner, or how else the game has ended. None while it goes on. A forfeit is by the player to move."""
        return self.stopped or self.board.result


class Move(BaseModel):
    """Take a square."""

    square: int = Field(description="The number of a free square.", ge=1, le=9)
    remark: str = Field("", description="A few words to your opponent.", max_length=100)


def draw_mark() -> Mark:
    """X or O, at random."""
    return choice(MARKS)


def make_server(draw_mark: Callable[[], Mark] = draw_mark) -> Server:
    """A server with the tool `play_ttt`. *draw_mark* decides for each game what the model plays."""
    server = Server("tic-tac-toe", resume_timeout=LONGEST_GAME)

    @server.tool
    async def play_ttt(context: Context) -> str:
        """Let the user play a game of tic-tac-toe against your model. Returns how it ended."""
        game = before(context, draw_mark())
        game = await play(game, context)
        return after(game)

    return server


# Before, on the server


def before(context: Context, model: Mark) -> Game:
    """Set the game up, if the client can play it.

    Raises:
        NotDeclared: The client has no model, or no forms for a person.
    """
    for capability in ("sampling", "elicitation"):
        if getattr(context.client_capabilities, capability) is None:
            raise NotDeclared(capability)
    return Game(model)


# The game, through the client


async def play(game: Game, context: Context) -> Game:
    """Let model and person move in turn, until the game has an outcome."""
    while game.outcome is None:
        move = ask_model if game.board.turn == game.model else ask_person
        game = await move(game, context)
    return game


async def ask_model(game: Game, context: Context) -> Game:
    """Sample a move. Without a legal one the model loses: a move made up for it would be ours, not the model's."""
    prompt = SamplingMessage(role="user", content=TextContent(text=f"{game.board}\n\nYou are {game.model}. Your move."))
    messages = [prompt, *await ask_strategy(prompt, game, context)]
    form = Tool(name="move", description="Take a square.", input_schema=Move.model_json_schema())
    sampling = context.client_capabilities.sampling
    with_tools = sampling is not None and sampling.tools is not None
    for _ in range(ATTEMPTS):
        if with_tools:
            answer = (await context.sample(messages=messages, tools=[form], tool_choice="required")).answer
        else:
            answer = (await context.sample(messages=messages)).answer
        try:
            move = (
                Move.model_validate(answer.tool_uses[0].input)
                if answer.tool_uses
                else Move.model_validate_json(answer.text)
            )
            board = game.board.take(move.square)
        except (IllegalMove, ValidationError) as exc:
            messages.append(SamplingMessage(role="assistant", content=answer.content))
            if answer.tool_uses:
                problem = ToolResultContent.of(answer.tool_uses[0], str(exc), is_error=True)
                messages.append(SamplingMessage(role="user", content=problem))
            else:
                messages.append(SamplingMessage(role="user", content=TextContent(text=str(exc))))
        else:
            says = f" and says: {move.remark}" if move.remark else "."
            return replace(game, board=board, news=f"The model took {move.square}{says}")
    return replace(game, stopped="forfeit")


async def ask_strategy(prompt: SamplingMessage, game: Game, context: Context) -> list[SamplingMessage]:
    """Let the model choose how to play on. The conversation with what its choice has told it; empty without tools."""
    sampling = context.client_capabilities.sampling
    if sampling is None or sampling.tools is None:
        return []

    def play_offensive() -> str:
        """Play to win: learn which squares complete your line."""
        return f"You win at once with: {listed(game.board.winning(game.model))}."

    def play_defensive() -> str:
        """Play safe: learn where your opponent would win."""
        return f"Your opponent would win with: {listed(game.board.winning(game.person))}."

    strategies = {"play_offensive": play_offensive, "play_defensive": play_defensive}
    answer = (await context.sample(messages=[prompt], tools=list(strategies.values()), tool_choice="required")).answer
    results = [ToolResultContent.of(use, strategies[use.name]()) for use in answer.tool_uses]
    return [
        SamplingMessage(role="assistant", content=answer.content),
        SamplingMessage(role="user", content=list(results)),
    ]


async def ask_person(game: Game, context: Context) -> Game:
    """Show the person a form with the free squares. To decline it, or to close it, ends the game."""
    choices = [str(square) for square in game.board.free]
    form = {
        "type": "object",
        "properties": {"square": {"type": "string", "title": "Your square", "enum": choices}},
        "required": ["square"],
    }
    for _ in range(ATTEMPTS):
        answer = await context.elicit(f"{game.news} You are {game.person}.\n\n{game.board}", form)
        if answer.action != "accept":
            return replace(game, stopped=answer.action)
        square = (answer.content or {}).get("square")
        if square in choices:
            return replace(game, board=game.board.take(int(str(square))))
    return replace(game, stopped="forfeit")


# After, on the server again


def after(game: Game) -> str:
    """The outcome and the board, in words for the model and for the person."""
    names = {game.model: "The model", game.person: "The person"}
    loser = game.board.turn
    match game.outcome:
        case "X" | "O" as winner:
            how = f"{names[winner]} wins with {winner}."
        case "draw":
            how = "It is a draw."
        case "forfeit":
            how = f"{names[loser]} loses: {loser} made no legal move in {ATTEMPTS} attempts."
        case "decline":
            how = "The person declined to play on."
        case _:
            how = "The person has left the game."
    return f"{how}\n\n{game.board}"
