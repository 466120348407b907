"""The rules of the example play_ttt, as tables and over all games that there are, and its scripted player."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from play_ttt.player import move, strategy
from play_ttt.rules import MARKS, Board, IllegalMove, Mark, read_board


def boards(board: Board | None = None) -> Iterator[Board]:
    """The board, and each that legal moves lead to. Most of them come more than once."""
    start = board or Board()
    yield start
    for square in start.free if start.result is None else ():
        yield from boards(start.take(square))


@pytest.mark.parametrize("line", ["123", "456", "789", "147", "258", "369", "159", "357"])
@pytest.mark.parametrize("mark", MARKS)
def test_three_in_a_row_win(line: str, mark: Mark) -> None:
    squares = "123456789"
    for square in line[:2]:
        squares = squares.replace(square, mark)
        assert Board(squares).result is None

    assert Board(squares).winning(mark) == [int(line[2])]
    assert Board(squares.replace(line[2], mark)).result == mark


def test_x_begins_and_the_marks_alternate() -> None:
    board = Board().take(5)

    assert board == Board("1234X6789")
    assert board.take(1) == Board("O234X6789")
    assert (Board().turn, board.turn, board.take(1).turn) == ("X", "O", "X")


@pytest.mark.parametrize(
    ("squares", "square", "problem"),
    [
        ("X23456789", 1, "1 is taken; free: 2, 3, 4, 5, 6, 7, 8, 9"),
        ("XO3456789", 2, "2 is taken; free: 3, 4, 5, 6, 7, 8, 9"),
        ("123456789", 0, "0 is not on the board; free: 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("XOXOOXXX9", 10, "10 is not on the board; free: 9"),
        ("123456789", -1, "-1 is not on the board; free: 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("XXXOO6789", 6, "the game is over"),
        ("XOXOOXXXO", 1, "the game is over"),
    ],
)
def test_an_illegal_move_is_refused_with_what_is_wrong(squares: str, square: int, problem: str) -> None:
    with pytest.raises(IllegalMove) as refused:
        Board(squares).take(square)

    assert str(refused.value) == problem


def test_every_game_ends_within_nine_moves_with_one_outcome() -> None:
    """There are 255,168 games of 5,478 positions; a position is looked at once."""
    games: dict[Board, Counter[str]] = {}

    def play_on(board: Board, moves: int) -> Counter[str]:
        if board not in games:
            if board.result is not None:
                assert {mark for mark in MARKS if mark * 3 in lines(board)} == {board.result} - {"draw"}
                games[board] = Counter([board.result])
            else:
                assert len(board.free) == 9 - moves > 0
                games[board] = sum((play_on(board.take(square), moves + 1) for square in board.free), Counter())
        return games[board]

    assert play_on(Board(), 0) == {"X": 131_184, "O": 77_904, "draw": 46_080}
    assert len(games) == 5_478


def lines(board: Board) -> set[str]:
    """What stands in each row, column and diagonal, found in another way than the rules do."""
    shown = board.squares
    rows = [shown[:3], shown[3:6], shown[6:]]
    columns = [shown[start::3] for start in range(3)]
    return {*rows, *columns, shown[::4], shown[2:7:2]}


def test_the_board_is_drawn_with_the_numbers_of_its_free_squares() -> None:
    assert str(Board("X23O5678X")).splitlines() == [
        " X | 2 | 3",
        "---+---+---",
        " O | 5 | 6",
        "---+---+---",
        " 7 | 8 | X",
    ]


def test_a_board_is_read_as_it_was_drawn() -> None:
    for board in {*boards(Board("XO3456789"))}:
        assert read_board(f"You are X.\n\n{board}\n\nIt is your turn.") == board


@pytest.mark.parametrize("text", ["", "Hello", " 1 | 2 | 3\n---+---+---\n 4 | 5 | 6"])
def test_a_text_without_a_board_has_none(text: str) -> None:
    assert read_board(text) is None


# The scripted player


@pytest.mark.parametrize(
    ("squares", "wanted"),
    [
        ("XX3OO6789", ("play_offensive", 3)),
        ("X23OO6X89", ("play_defensive", 6)),
        ("123456789", ("play_offensive", 5)),
        ("1234X6789", ("play_offensive", 2)),
    ],
    ids=["it wins first", "it blocks", "it begins in the middle", "it takes a side"],
)
def test_the_player_looks_one_move_ahead(squares: str, wanted: tuple[str, int]) -> None:
    board = Board(squares)

    assert (strategy(board), move(board)[0]) == wanted


@pytest.mark.parametrize("mark", MARKS)
def test_the_player_can_win_draw_and_lose_with_either_mark(mark: Mark) -> None:
    def against_all(board: Board) -> Iterable[str | None]:
        if board.result is not None:
            return [board.result]
        squares = [move(board)[0]] if board.turn == mark else board.free
        return [result for square in squares for result in against_all(board.take(square))]

    assert {*against_all(Board())} == {"X", "O", "draw"}
