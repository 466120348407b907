"""The types of files, by their first bytes, and the sizes of images."""

from __future__ import annotations

from base64 import b64encode

import pytest

from mcp_host.providers.exchange.file_types import MAX_SEGMENTS, image_size, type_by_bytes

BEGINNINGS = {
    "image/png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "image/gif": b"GIF89a\x01\0",
    "image/webp": b"RIFF\x0a\0\0\0WEBPVP8 ",
    "image/bmp": b"BM\x0a\0\0\0\0\0\0\0\x36\0",
    "image/heic": b"\0\0\0\x18ftypheic",
    "audio/wav": b"RIFF\x0a\0\0\0WAVEfmt ",
    "audio/mpeg": b"\xff\xfb\x90\x64",
    "application/pdf": b"%PDF-1.7",
}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_the_first_bytes_of_a_file_tell_its_type(kind: str) -> None:
    data = b64encode(BEGINNINGS[kind]).decode()

    assert {type_by_bytes(label, data) for label in ("", "application/octet-stream", *BEGINNINGS)} == {kind}


@pytest.mark.parametrize(
    ("label", "beginning", "kind"),
    [
        ("image/heif", BEGINNINGS["image/heic"], "image/heif"),
        ("audio/aac", b"ID3\x04", "audio/aac"),
        ("image/svg+xml", b"<svg/>", "image/svg+xml"),
        ("application/pdf", b"\n%PDF", "application/pdf"),
        ("audio/mpeg", b"\0", "audio/mpeg"),
        ("", b"a", ""),
        ("image/png", b"\x89P", None),
        ("audio/wav", b"OggS", None),
    ],
)
def test_another_name_of_a_type_is_kept_and_so_is_what_the_bytes_do_not_tell(
    label: str, beginning: bytes, kind: str | None
) -> None:
    assert type_by_bytes(label, b64encode(beginning).decode()) == kind


EXIF = b"\xff\xe1\xff\xff" + bytes(0xFFFD)
FRAME = b"\0\x11\x08\x21\x7a\x05\xa0"  # 1440 x 8570
SIZED = {
    "PNG": (BEGINNINGS["image/png"] + b"\0\0\x05\xa0\0\0\x21\x7a", (1440, 8570)),
    "a PNG that is cut": (BEGINNINGS["image/png"] + b"\0\0\x05\xa0\0\0\x21", None),
    "GIF": (b"GIF87a\x03\x02\x04\x05", (0x203, 0x504)),
    "a GIF that is cut": (b"GIF89a\x03\x02\x04", None),
    "WebP": (b"RIFF\x0a\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x00\x47\x01\x80", (0x700, 1)),
    "WebP without loss": (b"RIFF\x0a\0\0\0WEBPVP8L\0\0\0\0\x2f\x9f\x45\x5e\x08", (0x5A0, 8570)),
    "WebP with more": (b"RIFF\x0a\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x9f\x05\0\x79\x21\0", (1440, 8570)),
    "WebP of another kind": (b"RIFF\x0a\0\0\0WEBPALPH" + bytes(20), None),
    "JPEG": (b"\xff\xd8\xff\xe0\0\4JF" + EXIF + b"\xff\xff\xd0\xff\xc4\0\3a\xff\xc2" + FRAME, (1440, 8570)),
    "a JPEG that is cut in its frame": (b"\xff\xd8\xff\xc0" + FRAME[:-1], None),
    "a JPEG that is cut before": (b"\xff\xd8" + EXIF[:-9], None),
    "a JPEG whose image begins": (b"\xff\xd8\xff\xda" + FRAME, None),
    "a JPEG with something else": (b"\xff\xd8\0\xc0" + FRAME, None),
    "a JPEG of too many segments": (b"\xff\xd8" + b"\xff" * MAX_SEGMENTS + b"\xff\xc0" + FRAME, None),
    "nothing": (b"", None),
    "another file": (b"%PDF-1.7" + bytes(40), None),
}


def test_the_head_of_an_image_tells_its_size(subtests: pytest.Subtests) -> None:
    for case, (head, size) in SIZED.items():
        with subtests.test(case):
            assert image_size(b64encode(head).decode()) == size
            assert image_size(b64encode(head + bytes(100)).decode()) == size or "cut" in case
