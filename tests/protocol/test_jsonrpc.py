"""The codec, for every input."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from mcp_host.errors import CallerError, MessageTooLarge, ProtocolError
from mcp_host.protocol import jsonrpc
from mcp_host.protocol.jsonrpc import (
    MAX_READ_TWICE,
    Failure,
    Incoming,
    Malformed,
    Message,
    Notification,
    Params,
    Request,
    Success,
    _warn_of_halves,
    decode,
    depth,
    encode,
    has_long_number,
    malformed_error,
    recover_id,
    too_complex,
    too_large,
)
from tests.extent import saturated

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda value: st.lists(value) | st.dictionaries(st.text(), value),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
ids = st.integers(-(2**53), 2**53) | st.text()
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Request, ids, st.text(), objects),
    st.builds(Notification, st.text(), objects),
    st.builds(Success, ids, objects),
    st.builds(Failure, ids, st.integers(-(2**31), 2**31), st.text(), json_values),
)


@saturated
@given(messages)
def test_every_message_round_trips_as_one_line(message: Message) -> None:
    wire = encode(message)

    assert list(decode(wire)) == [message]
    assert b"\n" not in wire


@pytest.mark.parametrize("message", [Request(1, "ping", {}), Success(1, {"a": "é"})], ids=["request", "response"])
def test_requests_and_responses_know_how_large_they_were(message: Request | Success) -> None:
    """Small ones skip checks; the size of one that we send is unknown."""
    wire = encode(message)

    [read] = decode(wire)

    assert isinstance(read, Request | Success)
    assert (message.size, read.size) == (math.inf, len(wire))


@saturated
@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_bytes_are_messages_or_malformed(raw: bytes) -> None:
    for message in decode(raw):
        assert isinstance(message, Request | Notification | Success | Failure | Malformed)


@saturated
@given(st.lists(messages, min_size=1))
def test_a_batch_is_its_members_in_order(members: list[Message]) -> None:
    assert list(decode(b"[" + b",".join(encode(member) for member in members) + b"]")) == members


def read(body: object) -> object:
    (message,) = decode(json.dumps(body).encode())
    return message


DEVIATIONS: dict[str, tuple[dict[str, object], object]] = {
    "float-id": ({"id": 3.0, "result": {}}, Success(3, {})),
    "text-id": ({"id": "3", "result": {}}, Success("3", {})),
    "id-zero": ({"id": 0, "method": "ping"}, Request(0, "ping", {})),
    "id-of-many-digits": ({"id": 10**30, "method": "ping"}, Request(10**30, "ping", {})),
    "null-params": ({"id": 1, "method": "ping", "params": None}, Request(1, "ping", {})),
    "note": ({"method": "x", "params": {"a": 1}}, Notification("x", {"a": 1})),
    "result-and-error": ({"id": 1, "result": {}, "error": {"code": 5, "message": "m"}}, Failure(1, 5, "m")),
    "result-and-null": ({"id": 1, "result": {}, "error": None}, Success(1, {})),
    "all-members": ({"id": 1, "method": None, "params": None, "result": {}, "error": None}, Success(1, {})),
    "null-and-error": ({"id": 1, "result": None, "error": {"code": 5, "message": "m"}}, Failure(1, 5, "m")),
    "note-with-null": (
        {"id": None, "method": "notifications/x", "params": None, "result": None, "error": None}, Notification("notifications/x", {}),
    ),
    "no-id": ({"error": {"code": 5, "message": "m", "data": [1]}}, Failure(None, 5, "m", [1])),
    "code-with-a-point": ({"id": 7, "error": {"code": -32601.0, "message": "m"}}, Failure(7, -32601, "m")),
    "code-as-text": ({"id": 7, "error": {"code": "-32601", "message": "m", "data": 1}}, Failure(7, -32601, "m", 1)),
    "code-that-is-none": (
        {"id": 7, "error": {"code": "E_AUTH", "message": "m", "data": 1}}, Failure(7, -32603, "m (its code is 'E_AUTH')", 1)
    ),
    "fraction-as-code": (
        {"id": 7, "error": {"code": 1.5, "message": "m"}}, Failure(7, -32603, "m (its code is 1.5)")
    ),
    "code-is-a-boolean": (
        {"id": 7, "error": {"code": True, "message": "m"}}, Failure(7, -32603, "m (its code is True)")
    ),
    "no-message": ({"id": 7, "error": {"code": -32601.0, "data": 1}}, Failure(7, -32601, "an error without a message", 1)),
    "null-message": ({"id": 7, "error": {"code": 5, "message": None}}, Failure(7, 5, "an error without a message")),
    "message-as-object": ({"id": 7, "error": {"code": 5, "message": {"text": "m"}}}, Failure(7, 5, "{'text': 'm'}")),
    "empty-error": ({"id": 7, "error": {}}, Failure(7, -32603, "an error without a message")),
    "error-as-text": ({"id": 7, "error": "no"}, Failure(7, -32603, "no")),
    "null-id": ({"id": None, "error": {"code": 5, "message": "m"}}, Failure(None, 5, "m")),
    "empty-result-of-php": ({"id": 7, "result": []}, Success(7, {})),
    "null-result": ({"id": 7, "result": None, "error": None}, Success(7, {})),
    "empty-params-of-php": ({"id": 7, "method": "ping", "params": []}, Request(7, "ping", {})),
    "empty-params-of-a-notification": ({"method": "m", "params": []}, Notification("m", {})),
}  # fmt: skip


@pytest.mark.fault("J03", "J09")
def test_common_deviations_of_peers_are_accepted(subtests: pytest.Subtests) -> None:
    for case, (body, message) in DEVIATIONS.items():
        with subtests.test(case):
            assert read({"jsonrpc": "2.0"} | body) == message


INVALID: list[tuple[object, Malformed]] = [
    ({"jsonrpc": "1.0", "id": 7, "result": {}}, Malformed('jsonrpc is not "2.0"', 7)),
    ({"id": 7, "result": {}}, Malformed('jsonrpc is not "2.0"', 7)),
    ({"jsonrpc": 2.0, "id": 7, "result": {}}, Malformed('jsonrpc is not "2.0"', 7)),
    ({"level": 30, "id": 7, "msg": "done"}, Malformed("jsonrpc is not \"2.0\": {'level': 30, 'id': 7, 'msg': 'done'}")),
    ({"error": "upstream timed out"}, Malformed("jsonrpc is not \"2.0\": {'error': 'upstream timed out'}")),
    ({"id": 7, "error": {"code": 504}}, Malformed("jsonrpc is not \"2.0\": {'id': 7, 'error': {'code': 504}}", 7)),
    ({"message": "x" * 400}, Malformed(f"jsonrpc is not \"2.0\": {{'message': '{'x' * 287}… (415 characters)")),
    ({"jsonrpc": "2.0", "id": 7}, Malformed("neither result nor error", 7)),
    ({"jsonrpc": "2.0", "id": 7, "Result": {}, "ERROR": {"code": 1, "message": "m"}}, Malformed("neither result nor error", 7)),
    ({"jsonrpc": "2.0", "id": 7, "result": [1]}, Malformed("result is not an object", 7)),
    ({"jsonrpc": "2.0", "id": 7, "error": []}, Malformed("error is not an error object: []", 7)),
    ({"jsonrpc": "2.0", "id": 7, "error": None}, Malformed("neither result nor error", 7)),
    ({"jsonrpc": "2.0", "id": [], "error": {"code": 1, "message": "m"}}, Malformed("an error response without a usable id")),
    ({"jsonrpc": "2.0", "id": True, "result": {}}, Malformed("a response without a usable id")),
    ({"jsonrpc": "2.0", "id": 1.5, "result": {}}, Malformed("a response without a usable id")),
    ({"jsonrpc": "2.0", "id": 7, "method": "m", "params": [1]}, Malformed("params is not an object", 7, "m")),
    ({"jsonrpc": "2.0", "id": None, "method": "m"}, Malformed("an unusable request id", None, "m")),
    (42, Malformed("not an object: 42")),
    ([], Malformed("an empty batch")),
]  # fmt: skip


@pytest.mark.fault("J10", "J11", "J12", "J15")
def test_an_invalid_message_has_a_reason_and_its_id(subtests: pytest.Subtests) -> None:
    for body, malformed in INVALID:
        with subtests.test(body=body):
            assert read(body) == malformed


MEMBERS: dict[bytes, object] = {
    b'"Id":1,"ID":1,"id":2,"result":{}': Success(2, {}),
    b'"id":1,"id":2,"result":{}': Success(2, {}),
    rb'"id\u0000":1,"id":2,"result":{}': Success(2, {}),
    rb'"id ":1,"id":2,"\u0130d":1,"result":{}': Success(2, {}),
    b'"id":1,"result":{"a":1e999,"b":-1e999,"c":1e-999}': Success(1, {"a": math.inf, "b": -math.inf, "c": 0.0}),
    b'"id":1,"result":{"a":%b}' % (b"9" * 4000): Success(1, {"a": 10**4000 - 1}),
}


@pytest.mark.fault("J14", "J15", "J16")
def test_keys_are_exact_the_last_of_two_counts_and_numbers_are_those_of_python(subtests: pytest.Subtests) -> None:
    for members, message in MEMBERS.items():
        with subtests.test(members=members[:40]):
            assert decode(b'{"jsonrpc":"2.0",%b}' % members) == (message,)


SEQUENCES = (b"\x1b[?25h", b"\x1b[2K\r", b"\x1b]0;npm exec\x07", b"\x1b]2;a title\x1b\\\x1b[0;1m", b"\r\x1b[K ")


@pytest.mark.fault("F01")
def test_control_sequences_of_a_terminal_before_a_message_are_ignored(subtests: pytest.Subtests) -> None:
    """Launchers such as npm write them to stdout without a line end."""
    deep = b"[" * 300 + b"]" * 300
    for sequences, value in product(SEQUENCES, (b"1", b'"\\ud83d"', deep)):
        with subtests.test(sequences=sequences, value=value[:10]):
            (read,) = decode(sequences + b'{"jsonrpc":"2.0","id":5,"result":{"a":%b}}' % value)

            assert isinstance(read, Success)
    for noise in (
        b"\x1b[32mREADY\x1b[0m",
        b'\x1b[2m{"jsonrpc":"2.0","id":5,"result":{}}\x1b[0m',
        b"\x1b[",
        b"\x1b]0;{}",
    ):
        with subtests.test(noise=noise):
            assert isinstance(decode(noise)[0], Malformed)


UNDECODABLE: dict[str, tuple[bytes, object, object]] = {
    "bad UTF-8": (b'{"jsonrpc":"2.0","id":5,"result":{"text":"\xff"}}', 5, None),
    "bad UTF-8, the id last": (b'{"result":{"text":"\xff"},"jsonrpc":"2.0","id":5}', 5, None),
    "deep": (b'{"jsonrpc": "2.0", "id": 5, "result": ' + b"[" * 100_000, 5, None),
    "NaN": (b'{"id":5,"jsonrpc":"2.0","result":{"n":NaN}}', 5, None),
    "NaN beside a method": (b'{"jsonrpc":"2.0","id":5,"result":{"method":"m","n":NaN}}', 5, None),
    "a huge integer": (b'{"jsonrpc":"2.0","id":5,"result":{"n":' + b"9" * 20_000 + b"}}", 5, None),
    "a request": (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"n":NaN}}', 5, "ping"),
    "a request, the id last": (b'{"method":"ping","params":{"n":NaN},"jsonrpc":"2.0","id":5}', 5, "ping"),
    "a notification": (b'{"jsonrpc": "2.0", "method": "note", "params": {"n": NaN}}', None, "note"),
}  # fmt: skip


def test_the_id_and_the_method_of_an_undecodable_message_are_recovered(subtests: pytest.Subtests) -> None:
    for case, (raw, id, method) in UNDECODABLE.items():
        with subtests.test(case):
            (message,) = decode(raw)

            assert isinstance(message, Malformed)
            assert (message.id, message.method) == (id, method)


HALVES = {
    rb"\ud83d": "\ufffd",
    rb"cut \uD83D": "cut \ufffd",
    rb"\ud83d\ude00": "😀",
    rb"\ude00\ud83d": "\ufffd\ufffd",
    rb"\ud83d\ud83d\uDE00\ude00": "\ufffd😀\ufffd",
    rb"\\ud83d \\\ud83d\n": "\\ud83d \\\ufffd\n",
    rb"\ud83d\\ude00": "\ufffd\\ude00",
    rb"\\ud83d\ude00": "\\ud83d\ufffd",
    rb"\ud83d\u0041\ud7ff\ue000": "\ufffdA\ud7ff\ue000",
}


@pytest.mark.fault("J17")
def test_half_a_character_is_read_as_the_replacement_character(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JavaScript writes it for a text that was cut inside of an emoji: that costs one character, not the whole result."""
    _warn_of_halves.cache_clear()
    for (escaped, text), beside in product(HALVES.items(), (b"1", b"[" * 300 + b"]" * 300)):
        with subtests.test(escaped=escaped, beside=beside):
            (read,) = decode(
                b'{"jsonrpc":"2.0","id":5,"result":{"%b":"%b","a":%b,"":"\\ud83d"}}' % (escaped, escaped, beside)
            )

            assert read == Success(5, {text: text, "a": json.loads(beside), "": "\ufffd"})
    assert len(caplog.messages) == 1
    with monkeypatch.context() as patches:  # Python's parser and the depth take twice as long, and are not needed
        patches.setattr(jsonrpc, "depth", None)
        patches.setattr(jsonrpc, "json", None)
        assert decode(b'{"jsonrpc":"2.0","id":5,"result":{"a":"\\ud83d"}}') == (Success(5, {"a": "\ufffd"}),)


@pytest.mark.parametrize(
    "text",
    [b"\\ud83d\0", b"x" * MAX_READ_TWICE + b"\\ud83d", b"\\ud83d\xed\xa0\x80", b"\\ud8"],
    ids=["NUL", "long", "bytes", "cut"],
)
def test_half_a_character_saves_nothing_else(text: bytes) -> None:
    for beside in (b"1", b"[" * 300 + b"]" * 300):
        (message,) = decode(b'{"jsonrpc":"2.0","id":5,"result":{"a":%b,"b":"%b"}}' % (beside, text))

        assert isinstance(message, Malformed)


NEAR_THE_ENDS: dict[str, tuple[bytes, object]] = {
    "nested-only": (b'{"result":{"id":9},"x":"\xff"', None),
    "inside-params": (b'{"params":{"id":9}, "method":"m"}', None),
    "text": (b'{"jsonrpc":"2.0","id":"a b","result":1', "a b"),
    "none": (b"garbage", None),
    "within 256": (b'{"id":' + b" " * 248 + b"7,", 7),
    "past 256": (b'{"id":' + b" " * 249 + b"7,", None),
    "256 to the end": (b'{"a":0,"id":7' + b" " * 247 + b"}", 7),
    "257 to the end": (b'{"a":0,"id":7' + b" " * 248 + b"}", None),
}


def test_an_id_is_recovered_near_the_ends_only(subtests: pytest.Subtests) -> None:
    for case, (raw, id) in NEAR_THE_ENDS.items():
        with subtests.test(case):
            assert recover_id(raw, raw) == id


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), ['"NaN\\', float("nan"), '"'], {"NaN": -float("inf")}, object(), "\ud800"],
    ids=["nan", "inf", "nan between texts", "inf under a key", "object", "surrogate"],
)
def test_a_value_that_json_cannot_express_is_a_caller_error(value: object) -> None:
    with pytest.raises(CallerError, match="not expressible"):
        encode(Request(1, "m", {"a": value}))


@pytest.mark.parametrize(
    "message", [lambda deep: Request(1, "m", deep), lambda deep: Success(1, deep)], ids=["request", "answer"]
)
def test_an_outgoing_message_may_nest_255_levels_deep_and_no_deeper(message: Callable[[Params], Message]) -> None:
    fits, too_deep = (message({"x": json.loads(b"[" * levels + b"]" * levels)}) for levels in (253, 254))

    assert decode(encode(fits)) == (fits,)
    with pytest.raises(CallerError, match=r"not expressible in JSON: .*depth exceeded"):
        encode(too_deep)


def test_the_word_nan_in_a_string_is_allowed() -> None:
    for text in ("NaN and Infinity", '"NaN,', 'x\\" NaN', '"\\'):
        message = Notification("m", {"a": [text, "NaN"], "n": 10**5000})

        assert to_json(text) in encode(message), "a number of 5,000 digits may not be read again, but be written"


def marks(value: object) -> int:
    """How many opening brackets, colons and commas it takes to write a value."""
    match value:
        case list():
            return 1 + max(len(value) - 1, 0) + sum(map(marks, value))
        case dict():
            return 1 + len(value) + max(len(value) - 1, 0) + sum(map(marks, value.values()))
    return 0


@saturated
@given(json_values, st.booleans())
def test_marks_are_counted_outside_of_strings_only(value: object, ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii).encode(errors="replace")

    assert not too_complex(raw, marks(value))
    assert too_complex(raw, marks(value) - 1)


@pytest.mark.parametrize("text", ["[,", ""], ids=["with marks", "empty"])
def test_marks_are_counted_outside_of_thousands_of_strings(text: str) -> None:
    raw = json.dumps([text] * 1001).encode()

    assert not too_complex(raw, 1001)
    assert too_complex(raw, 1000)
    assert too_complex(raw, 999)


def test_without_marks_nothing_is_too_complex() -> None:
    """Not even thousands of strings with nothing between them, which are no JSON."""
    assert not too_complex(b'""' * 2000, 0)


def test_the_error_for_invalid_json_shows_its_beginning() -> None:
    (message,) = decode(b"log line " + b"x" * 100)

    assert isinstance(message, Malformed)
    assert message.reason == f"not JSON (expected value at line 1 column 1): log line {'x' * 71}… (100 characters)"


def levels(value: object) -> int:
    """How many arrays and objects of a value stand in each other, at most."""
    match value:
        case list():
            return 1 + max(map(levels, value), default=0)
        case dict():
            return 1 + max(map(levels, value.values()), default=0)
    return 0


@saturated
@given(json_values, st.booleans())
def test_levels_are_counted_outside_of_strings_only(value: object, ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii).encode(errors="replace")

    assert depth(raw) == levels(value)


def test_a_message_may_nest_640_levels_deep_and_no_deeper(subtests: pytest.Subtests) -> None:
    for deep, beside in product(
        (b"[" * 638 + b"]" * 638, b'{"a":' * 638 + b"1" + b"}" * 638), (b'"[{"', rb'"\\"', rb'"\"["', b"[[],{}]")
    ):
        with subtests.test(deep=deep, beside=beside):
            answer = b'{"jsonrpc":"2.0","id":5,"result":{"x":%b,"y":%b}}'
            (read,) = decode(answer % (deep, beside))
            (refused,) = decode(answer % (b"[%b]" % deep, beside))

            assert read == Success(5, {"x": json.loads(deep), "y": json.loads(beside)})
            assert isinstance(refused, Malformed)
            assert refused.id == 5
            assert refused.reason.startswith("not JSON (it nests too deeply (640 levels at most)): ")


def test_a_message_of_more_than_4_mib_may_nest_200_levels_deep_only() -> None:
    """Deeper ones are read by a slower parser, and looked through twice."""

    def nested(levels: int, beside: int) -> Incoming:
        deep = b"[" * levels + b"]" * levels
        return decode(b'{"jsonrpc":"2.0","id":5,"result":{"x":%b,"y":"%b"}}' % (deep, b"x" * beside))[0]

    assert isinstance(nested(190, MAX_READ_TWICE), Success)
    assert isinstance(nested(300, MAX_READ_TWICE - 700), Success)
    refused = nested(300, MAX_READ_TWICE)
    assert isinstance(refused, Malformed)
    assert refused.id == 5
    assert refused.reason.startswith(f"not JSON (it nests too deeply for its {MAX_READ_TWICE + 647:,} bytes): ")


def test_both_values_of_a_duplicate_key_count() -> None:
    """Else it would depend on the interpreter whether the message is read."""
    (message,) = decode(b'{"jsonrpc":"2.0","id":5,"result":{"x":%b,"x":1}}' % (b"[" * 700 + b"]" * 700))

    assert isinstance(message, Malformed)


def test_a_message_read_on_a_stack_that_is_nearly_full_is_read_or_refused() -> None:
    """Python 3.11 counts the levels of a message among the frames of the stack; later ones count them apart."""
    raw = b'{"jsonrpc":"2.0","id":5,"result":{"x":%b}}' % (b"[" * 638 + b"]" * 638)

    def called_from(frames: int) -> object:
        return called_from(frames - 1) if frames else decode(raw)[0]

    message = called_from(500)

    assert isinstance(message, Success if sys.version_info >= (3, 12) else Malformed)
    assert message.id == 5


def test_a_too_complex_message_fails_its_request_and_is_not_parsed() -> None:
    (message,) = decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":[' + b"[]," * 1_000_000 + b"[]]}}")

    assert isinstance(message, Malformed)
    assert (message.id, message.oversize) == (1, True)


@pytest.mark.parametrize("padding", [0, 1, 25, 50, 51, 52])
def test_a_number_of_310_digits_is_found_wherever_it_stands(padding: int) -> None:
    before, digits = b" " * padding + b'["\\\\\\"", ', b"1234567890" * 31

    assert has_long_number(before + digits + b"]")
    assert not has_long_number(before + digits[1:] + b"," + digits[1:] + b"]")
    assert not has_long_number(before + b'"a ' + digits + b'", "\\"' + digits + b'"]')


def test_a_large_message_with_a_long_number_fails_its_request_and_is_not_parsed() -> None:
    numbers = b",".join([b"1" * 4290] * (2**20 // 4290 + 1))

    [malformed] = decode(b'{"jsonrpc": "2.0", "id": 7, "result": {"a": [' + numbers + b"]}}")

    assert isinstance(malformed, Malformed)
    assert (malformed.id, malformed.oversize) == (7, True)
    assert malformed.reason.endswith("bytes with a number of more than 309 digits")


def test_a_string_of_commas_is_not_too_complex() -> None:
    answer = Success(1, {"a": '[,{"\\' * 1_000_000})

    assert list(decode(encode(answer))) == [answer]


def test_the_error_of_a_request_distinguishes_malformed_from_too_large() -> None:
    broken = malformed_error(Malformed("result is not an object", 1))
    large = malformed_error(too_large(b'{"jsonrpc":"2.0","id":1,', b"}", 1000))

    assert type(broken) is ProtocolError
    assert type(large) is MessageTooLarge
    assert str(large) == "a message of more than 1,000 bytes (Limits.max_message)"


def test_a_batch_of_too_many_messages_is_rejected() -> None:
    """All of a batch is taken in one turn of the event loop."""

    def batch(messages: int) -> bytes:
        return b"[" + b",".join([b'{"jsonrpc":"2.0","method":"m"}'] * messages) + b"]"

    assert decode(batch(5_000)) == [Notification("m", {})] * 5_000
    assert decode(batch(5_001)) == (Malformed("a batch of 5,001 messages, more than 5,000", oversize=True),)
