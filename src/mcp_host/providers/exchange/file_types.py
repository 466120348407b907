"""The type of a file by its first bytes, and the size of an image: servers label a PNG as image/jpeg, or send one that is too
large, which a provider refuses in every later prompt, too.
"""

from __future__ import annotations

import re
from base64 import b64decode

BEGINNING = 16  # characters of base64, which are 12 bytes

FILE_TYPES = {
    re.compile(beginning, re.DOTALL): kinds
    for beginning, kinds in (
        (rb"\x89PNG\r\n\x1a\n", ("image/png",)),
        (rb"\xff\xd8\xff", ("image/jpeg",)),
        (rb"GIF8[79]a", ("image/gif",)),
        (rb"RIFF.{4}WEBP", ("image/webp",)),
        (rb"BM.{4}\0{4}", ("image/bmp",)),
        (rb".{4}ftyp(hei[cxms]|hev[cxms]|mif1|msf1)", ("image/heic", "image/heif")),
        (rb"RIFF.{4}WAVE", ("audio/wav",)),
        # AAC and FLAC may begin with the tags of MP3.
        (rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]", ("audio/mpeg", "audio/aac", "audio/flac")),
        (rb"%PDF-", ("application/pdf",)),
    )
}
"""The types that a file may have which begins so, the most likely first."""

ALWAYS_BEGIN_SO = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav"})
"""Types of which no file begins otherwise. A PDF file may have something before its header, and an MP3 file has no header."""


def type_by_bytes(kind: str, data: str) -> str | None:
    """The type of a file that is labelled as *kind*, by the first bytes of *data*, which is base64. *kind* itself, if they
    are those of another file of that type, or unknown; None if no file of that type begins so.
    """
    beginning = b64decode(data[:BEGINNING])
    for pattern, kinds in FILE_TYPES.items():
        if pattern.match(beginning):
            return kind if kind in kinds else kinds[0]
    return None if kind in ALWAYS_BEGIN_SO else kind


# The size of an image

HEAD = 30  # bytes, in which all but JPEG have it

MAX_SEGMENTS = 512  # of a JPEG before its size: profiles and thumbnails take some dozens

FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # the segments of a JPEG that have its size
ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a segment
LAST = frozenset({0xD9, 0xDA})  # after these it is too late


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, JPEG, GIF or WebP image in plain base64; None for another, or if its head is cut."""
    head = _bytes_at(data, 0, HEAD)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    for beginning, least, read in SIZES:
        if beginning.match(head) and len(head) >= least:
            return read(head)
    return None


def _webp_lossless(head: bytes) -> tuple[int, int]:
    bits = int.from_bytes(head[21:25], "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _big(part: bytes) -> int:
    return int.from_bytes(part, "big")


def _little(part: bytes) -> int:
    return int.from_bytes(part, "little")


SIZES = tuple(
    (re.compile(beginning, re.DOTALL), least, read)
    for beginning, least, read in (
        (rb"\x89PNG\r\n\x1a\n.{4}IHDR", 24, lambda head: (_big(head[16:20]), _big(head[20:24]))),
        (rb"GIF8[79]a", 10, lambda head: (_little(head[6:8]), _little(head[8:10]))),
        (
            rb"RIFF.{4}WEBPVP8 .{7}\x9d\x01\x2a",
            30,
            lambda head: (_little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF),
        ),
        (rb"RIFF.{4}WEBPVP8L.{4}\x2f", 25, _webp_lossless),
        (rb"RIFF.{4}WEBPVP8X", 30, lambda head: (_little(head[24:27]) + 1, _little(head[27:30]) + 1)),
    )
)
"""How the head of an image begins, how many bytes of it are needed, and what they say."""


def _jpeg_size(data: str) -> tuple[int, int] | None:
    at = 2
    for _ in range(MAX_SEGMENTS):
        segment = _bytes_at(data, at, 9)  # a marker, the length, and of a frame: precision, height and width
        if len(segment) < 2 or segment[0] != 0xFF or segment[1] in LAST:
            return None
        if segment[1] == 0xFF:  # a fill byte
            at += 1
        elif segment[1] in ALONE:
            at += 2
        elif segment[1] in FRAMES:
            return (_big(segment[7:9]), _big(segment[5:7])) if len(segment) == 9 else None
        else:
            at += 2 + _big(segment[2:4])
    return None


def _bytes_at(data: str, start: int, count: int) -> bytes:
    """At most *count* bytes of a file from *start* on, without decoding the rest."""
    first, last = start // 3 * 4, -(-(start + count) // 3) * 4
    return b64decode(data[first:last])[start % 3 :][:count]
