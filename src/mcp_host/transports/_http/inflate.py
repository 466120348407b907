"""Undoing a body's compression a bounded piece at a time, so that a bomb never goes off."""

from __future__ import annotations

import zlib

from mcp_host.errors import ConnectionClosed, ProtocolError, excerpt

ACCEPTED = "gzip, deflate"
PIECE = 64 * 1024  # bytes of output at a time; httpx's own decoders inflate whatever a chunk holds

_GZIP = 16 + zlib.MAX_WBITS
_CODINGS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class Inflater:
    """Decompresses what one Content-Encoding names.

    Raises:
        ProtocolError: The encoding is none that was asked for.
        ConnectionClosed: The compressed bytes are corrupt, or were cut off.
    """

    def __init__(self, coding: str) -> None:
        if coding not in _CODINGS:
            raise ProtocolError(f"the body has the Content-Encoding {excerpt(coding)}; asked for were {ACCEPTED}")
        self._coding = coding
        self._stream: zlib._Decompress | None = None
        self._input = b""
        self._more = False

    @property
    def pending(self) -> bool:
        """Whether `take` may have something to give without being fed."""
        return bool(self._input) or self._more

    def feed(self, chunk: bytes) -> None:
        """Take in compressed bytes; only when nothing is pending."""
        self._input = chunk

    def take(self) -> bytes:
        """The next piece, at most PIECE bytes; may be empty."""
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window_bits(self._input))
        try:
            piece = self._stream.decompress(self._input, PIECE)
        except zlib.error as exc:
            raise ConnectionClosed(f"the body's {self._coding} compression is corrupt: {exc}") from exc
        self._input = self._stream.unconsumed_tail
        self._more = len(piece) == PIECE  # zlib may hold output back although it has swallowed all input
        return piece

    def finish(self) -> None:
        """Check, at the end of the body, that the compression ended too."""
        if self._stream is not None and not self._stream.eof:
            raise ConnectionClosed(f"the body's {self._coding} compression was cut off")

    def _window_bits(self, head: bytes) -> int:
        bits = _CODINGS[self._coding]
        if bits == zlib.MAX_WBITS and head[0] & 0x0F != zlib.DEFLATED:
            return -zlib.MAX_WBITS  # "deflate" without the zlib wrapper that RFC 9110 asks for: some servers do
        return bits
