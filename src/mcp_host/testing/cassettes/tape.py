"""What both sides of a cassette share: the entries, which of them were replayed, and what did not match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from threading import Event, RLock

from mcp_host.testing.cassettes.file import Entry, again, layout
from mcp_host.testing.cassettes.ids import Ids
from mcp_host.testing.cassettes.redaction import Redaction
from mcp_host.testing.errors import CassetteError
from mcp_host.types.base import JSONValue

MAX_LINES = 60  # of a difference
NARROW = 60  # columns of JSON to compare, so that a line holds little else than what differs


class Tape:
    """The *entries* of one cassette. *replays*: those are answered from it; *records*: new ones are added."""

    def __init__(
        self, path: Path, entries: Sequence[Entry], redaction: Redaction, *, replays: bool, records: bool
    ) -> None:
        self.path = path
        self.replays = replays
        self.records = records
        self.redaction = redaction
        self.ids = Ids()
        self.ids.reserve(list(entries))
        self.failure: CassetteError | None = None
        """The first thing that went wrong: SDKs and sessions turn exceptions into others."""
        self.unfinished: set[Callable[[], None]] = set()
        """What writes into an entry when its response ends."""
        self.lock = RLock()
        """For all else here, and the ids and the redaction: blocking clients use them in threads."""
        self.ended = Event()
        """Set when the cassette's block has ended."""
        self._old = list(entries)
        self._used: set[int] = set()
        self._new: list[tuple[int, Entry]] = []
        self._place = 0

    # Recording

    def begin(self, entry: Entry) -> int:
        """Add *entry* after all others, and return its place."""
        self._place += 1
        self._new.append((self._place, entry))
        return self._place

    def record(self, entry: Entry, *, beside: int | None = None) -> int:
        """Add *entry* at the place *beside*, or at the last one, and return it."""
        place = self._place if beside is None else beside
        self._new.append((place, entry))
        return place

    def drop(self, entry: Entry) -> None:
        """Take *entry* back: it was not sent."""
        with self.lock:
            self._new = [pair for pair in self._new if pair[1] is not entry]

    @property
    def changed(self) -> bool:
        return bool(self._new)

    def entries(self) -> list[Entry]:
        """All that is to be saved, by request: what was sent at the same time is not mixed in the file."""
        for finish in list(self.unfinished):
            finish()
        recorded = [entry for _, entry in sorted(self._new, key=lambda pair: pair[0])]
        entries = [*self._old, *recorded]
        self.redaction.learn_members(entries)
        for _, _, events in _streams(entries):
            self.redaction.learn_stream(events)
        streams = [self.redaction.stream(events) for _, _, events in _streams(entries)]
        redacted = self.redaction.json(entries)
        assert isinstance(redacted, list), "as it was"
        for (response, name, _), events in zip(_streams(redacted), streams, strict=True):
            response[name] = events  # a piece by itself may look like the text of JSON
        return redacted

    # Replaying

    def unused(self) -> Iterator[Entry]:
        """The entries that no request has used."""
        return (entry for entry in self._old if id(entry) not in self._used)

    def use(self, entry: Entry) -> None:
        """*entry* was sent or received."""
        self._used.add(id(entry))

    def find(self, candidates: Sequence[Entry], part: str, live: JSONValue) -> Entry | None:
        """The first of *candidates* whose *part* is *live*, which is used now; None if there is none."""
        redacted = self.redaction.json(live)
        for entry in candidates:
            if self.ids.match(entry[part], live) or self.ids.match(entry[part], redacted):
                self.use(entry)
                return entry
        return None

    def refuse(self, candidates: Sequence[Entry], part: str, live: JSONValue, what: str) -> CassetteError:
        """The error for *what*, which is in none of *candidates*: it shows how the nearest differs."""
        live = self.redaction.json(live)
        text = f"{what} is not in {self.path}"
        if candidates:
            now = layout(live, width=NARROW).splitlines()
            there = [layout(self.ids.align(entry[part], live), width=NARROW).splitlines() for entry in candidates]
            nearest = max(there, key=lambda lines: SequenceMatcher(None, lines, now, autojunk=False).ratio())
            lines = list(unified_diff(nearest, now, "recorded", "now", lineterm=""))
            cut = [f"… {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else []
            text += (
                ". The nearest that was not used yet:\n"
                + "\n".join([*lines[:MAX_LINES], *cut])
                + "\nIf this is intended, "
            )
        else:
            text += ", and no other like it is left. If this is intended, "
        return self.fail(CassetteError(text + again(self.path)))

    def fail(self, error: CassetteError) -> CassetteError:
        """Note *error*, which the cassette raises in the end, and return it."""
        self.failure = self.failure or error
        return error


def _streams(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str, list[JSONValue]]]:
    """The streams that *entries* have: the response, the name of its member, and the events."""
    for entry in entries:
        response = entry.get("response", {})
        for name in ("events", "lines"):
            if name in response:
                yield response, name, response[name]
