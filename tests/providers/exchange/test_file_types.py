"""The types of files, by their first bytes."""

from __future__ import annotations

from base64 import b64encode

import pytest

from mcp_host.providers.exchange.file_types import type_by_bytes

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
        ("audio/x-wav", BEGINNINGS["audio/wav"], "audio/x-wav"),
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
