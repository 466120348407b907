"""A player that stands for the host's model: it wins and blocks where it can, but looks only one move ahead."""

from __future__ import annotations

import json

from mcp_host import SamplingRequest
from mcp_host.types import CreateMessageResult
from play_ttt.rules import Board, opponent, read_board

NAME = "scripted player"
BEST_FIRST = (5, 2, 4, 6, 8, 1, 3, 7, 9)  # the middle, then the sides: weaker than the corners, so you can win


async def player(request: SamplingRequest) -> CreateMessageResult:
    """A sampling handler, with and without tools. It reads the board from the newest message that has one."""
    boards = (read_board(message.text) for message in reversed(request.messages))
    board = next(filter(None, boards), None)
    if board is None:
        request.refuse("I play tic-tac-toe only")
    square, remark = move(board)
    answer = {"square": square, "remark": remark}
    match [tool.name for tool in request.tools]:
        case []:
            return request.reply(json.dumps(answer), model=NAME)
        case [tool]:  # the form of the answer
            return request.call(tool, answer, model=NAME)
        case _:
            return request.call(strategy(board), model=NAME)


def strategy(board: Board) -> str:
    """Defend if there is something to defend and nothing to win."""
    threatened = board.winning(opponent(board.turn))
    return "play_defensive" if threatened and not board.winning(board.turn) else "play_offensive"


def move(board: Board) -> tuple[int, str]:
    """The square to take, and a remark for the opponent."""
    if wins := board.winning(board.turn):
        return wins[0], "Three in a row!"
    if threats := board.winning(opponent(board.turn)):
        return threats[0], "Not so fast."
    if len(board.free) == 1:
        return board.free[0], "A draw, then."
    return next(square for square in BEST_FIRST if square in board.free), "Your move."
