"""The type of a file by its first bytes: servers label a PNG as image/jpeg, which a provider refuses in every later prompt, too."""

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
        (rb"RIFF.{4}WAVE", ("audio/wav", "audio/wave", "audio/x-wav", "audio/vnd.wave")),
        # AAC and FLAC may begin with the tags of MP3.
        (rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]", ("audio/mpeg", "audio/mp3", "audio/x-mp3", "audio/aac", "audio/flac")),
        (rb"%PDF-", ("application/pdf",)),
    )
}
"""The types that a file may have which begins so, the most likely first."""

ALWAYS_BEGIN_SO = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/wave", "audio/x-wav", "audio/vnd.wave"}
)
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
