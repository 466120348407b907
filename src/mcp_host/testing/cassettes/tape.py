"""The tape that both sides of a cassette share: its entries, which of them were used, and what did not match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from threading import Event, RLock

from mcp_host.testing.cassettes.file import Entry, how_to_record_again, layout
from mcp_host.testing.cassettes.ids import Ids
from mcp_host.testing.cassettes.redaction import Redaction
from mcp_host.testing.errors import CassetteError
from mcp_host.types.base import JSONValue

MAX_LINES = 60  # of a difference
NARROW = 60  # columns of compared JSON: a line that differs then has little else in it


class Tape:
    """The *entries* of one cassette. With *replays*, they answer requests; with *records*, new ones are added."""

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
        """The first failure. It is kept because SDKs and sessions raise other exceptions in its place."""
        self.unfinished: set[Callable[[], None]] = set()
        """Functions that complete an entry when its response ends."""
        self.lock = RLock()
        """Guards the other attributes, also *ids* and *redaction*: blocking clients use them in threads."""
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
        """Add *entry* at the place *beside*, by default at the last one, and return the place."""
        place = self._place if beside is None else beside
        self._new.append((place, entry))
        return place

    def drop(self, entry: Entry) -> None:
        """Take *entry* back: it was not sent."""
        with self.lock:
            self._new = [pair for pair in self._new if pair[1] is not entry]

    def learn_sent(self, url: str, headers: Iterable[tuple[str, str]]) -> None:
        """Find the secrets of a request that is sent to a server."""
        with self.lock:
            self.redaction.url(url)  # finds those in it, as the next line does
            self.redaction.headers(headers)

    @property
    def changed(self) -> bool:
        return bool(self._new)

    def entries(self) -> list[Entry]:
        """What to save. The entries of one request stand together, also if others were under way at the same time."""
        for finish in list(self.unfinished):
            finish()
        recorded = [entry for _, entry in sorted(self._new, key=lambda pair: pair[0])]
        entries = [*self._old, *recorded]
        self.redaction.learn_members(entries)
        for _, _, events in _streams(entries):
            self.redaction.learn_stream(events)
        streams = [self.redaction.stream(events) for _, _, events in _streams(entries)]
        redacted = self.redaction.json(entries)
        assert isinstance(redacted, list), "a list stays one"
        for (response, name, _), events in zip(_streams(redacted), streams, strict=True):
            response[name] = events  # which `json` may mark otherwise: a piece may look like JSON by itself
        return redacted

    # Replaying

    def unused(self) -> Iterator[Entry]:
        """The entries that no request has used."""
        return (entry for entry in self._old if id(entry) not in self._used)

    def use(self, entry: Entry) -> None:
        """Note that *entry* was sent or received."""
        self._used.add(id(entry))

    def find(self, candidates: Sequence[Entry], part: str, live: JSONValue) -> Entry | None:
        """The first of *candidates* whose member *part* matches *live*, now used; None if there is none."""
        redacted = self.redaction.json(live)
        for entry in candidates:
            if self.ids.match(entry[part], live) or self.ids.match(entry[part], redacted):
                self.use(entry)
                return entry
        return None

    def refuse(self, candidates: Sequence[Entry], part: str, live: JSONValue, what: str) -> CassetteError:
        """The error for *what*, which matches none of *candidates*: it shows how the nearest differs."""
        live = self.redaction.json(live)
        text = f"{self.redaction.text(what)} is not in {self.path}"
        if candidates:
            now = layout(live, width=NARROW).splitlines()
            there = [layout(self.ids.align(entry[part], live), width=NARROW).splitlines() for entry in candidates]
            nearest = max(there, key=lambda lines: SequenceMatcher(None, lines, now, autojunk=False).ratio())
            lines = list(unified_diff(nearest, now, "recorded", "now", lineterm=""))
            cut = [f"… {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else []
            text += ". The nearest that was not used yet:\n" + "\n".join([*lines[:MAX_LINES], *cut]) + "\n"
        else:
            text += ", and no other like it is left. "
        return self.fail(CassetteError(f"{text}If this is intended, {how_to_record_again(self.path)}"))

    def fail(self, error: CassetteError) -> CassetteError:
        """Note *error*, which the cassette raises when its block ends, and return it."""
        self.failure = self.failure or error
        return error


def _streams(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str, list[JSONValue]]]:
    """Each stream in *entries*: the response, the name of the member, and the events."""
    for entry in entries:
        response = entry.get("response", {})
        for name in ("events", "lines"):
            if name in response:
                yield response, name, response[name]
