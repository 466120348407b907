"""`make mutants`: which small changes of the package the suite notices, for the mutants in `drawn.json`.

One recording run finds the tests that reach each mutant. These then run in forks of one process that
has collected the suite, for each mutant until one fails. Stopped and started again, the run goes on;
it begins anew after any change of the package or of its tests.

Arguments are ids of mutants: ``.venv/bin/python -m mutants.run 17 18``. All of it is in ``.mutants/``.
With ``--before mutants/before.json`` it lists what the suite of 23,300 cases killed (commit 5eaeb92),
and this one does not. Run these again with a larger ``--cap``, for more of the tests that reach them. Tests of
interop are not run: six mutants of two adapters, which need their providers' SDKs, are killed only there.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from mutants import draw, hook
from mutants.draw import ROOT, Mutant, Place
from mutants.plugin import play
from mutants.report import Result, lost_kills, read_results, report, store
from mutants.schemata import write_code

FOLDER = Path(hook.FOLDER)
RESULTS, LOGS = FOLDER / "results.jsonl", FOLDER / "logs"
PTH = Path(sysconfig.get_path("purelib")) / "zz_mutants.pth"

WORKERS = 2
CAP = 240.0  # seconds of tests for a mutant that thousands of tests reach
HANGS = 30.0  # seconds beyond ten times the duration of a test, after which it hangs
COLLECTING = 600.0  # seconds that a process may take until its first test
MEMORY = 8 * 1024**3  # a mutant may append for ever
POLL = 0.02
FAR = 2
SHARES = (0.5, 0.75, 1.0)  # of the cap, for tests of a distance and for nearer ones

DIE_WITH_PARENT, ADOPT_ORPHANS = 1, 36  # of prctl(2)
FAILED, DIED, HUNG = "failed", "died", "hung"

PYTEST = ["-qq", "-p", "no:cacheprovider", "-p", "mutants.plugin", "--ignore", "tests/test_mutants.py"]


class Failure(NamedTuple):
    test: str  # "" where the package could not even be imported
    how: str


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants.run")
    parser.add_argument("ids", nargs="*", type=int, help="judge these mutants, again if need be; all others by default")
    parser.add_argument("--cap", type=float, default=CAP, help="seconds of tests for each mutant")
    parser.add_argument("--minutes", type=float, default=1e9, help="judge no further mutants after so many")
    parser.add_argument("--record", action="store_true", help="do the recording run only")
    parser.add_argument("--store", type=Path, help="write the verdicts to this file, too")
    parser.add_argument("--before", type=Path, help="list what was killed in this file and is not any more")
    options = parser.parse_args(arguments)
    end = time.monotonic() + 60 * options.minutes
    mutants, sources = draw.read_drawn(), draw.read_sources()
    begin(mutants, sources)
    found = write_code(mutants, sources, FOLDER / "code")
    with hooked():
        if not Path(hook.DURATIONS).exists():
            record()
        if not options.record:
            done = {} if options.ids else read_results(RESULTS)
            wanted = options.ids or [mutant.id for mutant in mutants if mutant.equivalent is None]
            todo = [
                mutant for mutant in mutants if mutant.id in wanted and mutant.id in found and mutant.id not in done
            ]
            judge_all(Judge(todo, found, options.cap, end))
    results = read_results(RESULTS)
    print(report(mutants, found.keys(), results))
    if options.before:
        print(lost_kills(mutants, found.keys(), results, options.before))
    if options.store:
        store(mutants, found.keys(), results, options.store)
    return 0


def begin(mutants: Sequence[Mutant], sources: Mapping[str, str]) -> None:
    """An empty folder, unless what is there is of just these sources, tests and mutants."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_mutants.py"]
    unproven = [replace(mutant, equivalent=None) for mutant in mutants]
    everything = [*sorted(sources.items()), *unproven, *sorted(path.read_text() for path in files)]
    fingerprint = hashlib.sha256(repr(everything).encode()).hexdigest()
    FOLDER.mkdir(exist_ok=True)
    lock = os.open(FOLDER, os.O_RDONLY)  # until this process has ended
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("mutants: another run is going on here")
    of = FOLDER / "of"
    if not of.exists() or of.read_text() != fingerprint:
        for old in FOLDER.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        of.write_text(fingerprint)
    shutil.rmtree(hook.ROLES, ignore_errors=True)
    for folder in (Path(hook.ROLES), LOGS):
        folder.mkdir(exist_ok=True)


@contextmanager
def hooked() -> Iterator[None]:
    """For the time being, every Python of the virtual environment imports the hook; few get our environment."""
    PTH.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import mutants.hook as h; h.install(); del sys.path[0], h\n"
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutants: terminated"))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else hundreds of processes would compile the tests anew
    try:
        yield
    finally:
        PTH.unlink()


def record() -> None:
    """Run the suite once, and write down what each test reaches and how long it takes."""
    hook.take(hook.RECORDING)
    command = [sys.executable, "-m", "pytest", *PYTEST, "-n", str(WORKERS + 1), "--dist", "worksteal"]
    ended = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"mutants: the recording run ended with {ended}")


def judge_all(judge: Judge) -> None:
    if judge.todo:
        hook.take(str(hook.NONE))
        hook.instrument()
        pytest.main(PYTEST, plugins=[judge])


class Judge:
    """A plugin of pytest, which runs not the tests that are collected but some of them for each mutant."""

    def __init__(self, todo: list[Mutant], places: Mapping[int, Place], cap: float, end: float) -> None:
        self.todo = todo
        self._places = places
        self._cap = cap
        self._end = end
        recorded = json.loads(Path(hook.DURATIONS).read_text())
        failed = set(recorded["failed"])
        self._durations: dict[str, float] = {
            test: seconds for test, seconds in recorded["durations"].items() if test not in failed
        }
        self._reaching: defaultdict[int, set[str]] = defaultdict(set)
        for line in Path(hook.REACHED).read_text().splitlines():
            number, _, test = line.partition(" ")
            self._reaching[int(number)].add(test)
        self._session: pytest.Session

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        queue, end = os.pipe()
        for mutant in self.todo:
            os.write(end, mutant.id.to_bytes(4))
        os.close(end)
        workers = [fork(lambda: self._work(queue)) for _ in range(WORKERS)]
        for worker in workers:
            os.waitpid(worker, 0)
        return True

    def _work(self, queue: int) -> None:
        set_process(DIE_WITH_PARENT, signal.SIGKILL)
        set_process(ADOPT_ORPHANS, 1)
        mutants = {mutant.id: mutant for mutant in self.todo}
        while time.monotonic() < self._end and (number := os.read(queue, 4)):
            mutant = mutants[int.from_bytes(number)]
            result = self._judge(mutant)
            with RESULTS.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{result}: {mutant}".replace("\n", " "), flush=True)

    def _judge(self, mutant: Mutant) -> Result:
        begun = time.monotonic()
        reaching = self._reaching[mutant.id]
        at_import = self._places[mutant.id].at_import or "" in reaching
        if at_import:  # what is made of it may be used anywhere, first of all nearby
            reaching = reaching | {test for test in self._durations if distance(mutant, file_of(test)) < FAR}
        first = select(mutant, reaching, self._durations, self._cap)
        rounds = [first]
        if at_import:
            left = self._cap - sum(map(self._durations.__getitem__, first))
            rounds.append(select(mutant, self._durations.keys() - {*first}, self._durations, left))
        flaky: list[str] = []
        for tests in rounds:
            while tests:
                failure = self._attempt(mutant.id, tests, fresh=at_import)
                if failure is None:
                    break
                if self._is_confirmed(mutant.id, tests, failure, fresh=at_import):
                    seconds = round(time.monotonic() - begun, 1)
                    return Result(mutant.id, "killed", *failure, flaky=flaky, seconds=seconds)
                flaky.append(failure.test)
                tests = tests[tests.index(failure.test) + 1 :] if failure.test else []
        ran, of = sum(map(len, rounds)), len(self._durations if at_import else reaching & self._durations.keys())
        return Result(mutant.id, "survived", ran=ran, of=of, flaky=flaky, seconds=round(time.monotonic() - begun, 1))

    def _is_confirmed(self, number: int, tests: Sequence[str], failure: Failure, *, fresh: bool) -> bool:
        """Whether the test that failed passes without the mutant, and fails with it again."""
        if not failure.test:
            return self._attempt(hook.NONE, tests[:1], fresh=True) is None
        if self._attempt(hook.NONE, [failure.test], fresh=False) is not None:
            return False
        at = tests.index(failure.test)  # what the test before it left behind may be what failed
        return failure.how == HUNG or self._attempt(number, tests[max(at - 1, 0) : at + 1], fresh=fresh) is not None

    def _attempt(self, number: int, tests: Sequence[str], *, fresh: bool) -> Failure | None:
        """Run these *tests* with a mutant, to the first that fails. *fresh*: in a process that has imported nothing."""
        log = LOGS / str(os.getpid())
        log.write_text("")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary, log.open() as lines:
            child = fork(lambda: self._play(number, tests, log, temporary, fresh=fresh))
            failure, running, unread, since = None, "", "", time.monotonic()
            while True:
                ended = has_ended(child)
                *complete, unread = (unread + lines.read()).split("\n")
                for line in complete:
                    word, _, test = line.partition(" ")
                    if word == "end":
                        end_children()
                        return None
                    running, since = test, time.monotonic()
                    if word == "failed":
                        failure = Failure(test, FAILED)
                limit = HANGS + 10 * self._durations[running] if running else COLLECTING
                if failure is None and ended:
                    failure = Failure(running, DIED)
                elif failure is None and time.monotonic() - since > limit:
                    failure = Failure(running, HUNG)
                if failure is not None:
                    end_children()
                    return failure
                time.sleep(POLL)

    def _play(self, number: int, tests: Sequence[str], log: Path, temporary: str, *, fresh: bool) -> None:
        set_process(DIE_WITH_PARENT, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
        hook.take(str(number))
        if fresh:
            listed = log.with_suffix(".json")
            listed.write_text(json.dumps(tests))
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.execv(sys.executable, [sys.executable, "-m", "mutants.plugin", str(listed), str(log), *PYTEST])
        play(self._session, tests, log)


def select(mutant: Mutant, tests: Set[str], durations: Mapping[str, float], cap: float) -> list[str]:
    """The cheapest and nearest first. Of more than *cap* seconds the cheapest of each file, of near files more."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for test in sorted(tests & durations.keys(), key=lambda test: (durations[test], test)):
        files[file_of(test)].append(test)
    chosen: list[str] = []
    used = 0.0
    for near, share in enumerate(SHARES):
        ours = [files[file] for file in sorted(files) if distance(mutant, file) == near]
        for test in (test for each in zip_longest(*ours) for test in each if test is not None):
            if used + durations[test] <= share * cap:
                chosen.append(test)
                used += durations[test]

    def cost(test: str) -> tuple[int, str, float]:
        file = file_of(test)
        return round(math.log2(max(durations[test], 0.001))) + 2 * distance(mutant, file), file, durations[test]

    return sorted(chosen, key=cost)


def file_of(test: str) -> str:
    return test.partition("::")[0]


def distance(mutant: Mutant, file: str) -> int:
    """From a mutant to a file of tests: 0 for its module's own, 1 for its package's, else `FAR`."""
    module = Path(mutant.file)
    is_near = module.parts[0] in Path(file).parts
    if Path(file).stem.startswith(f"test_{module.stem}") and (is_near or len(module.parts) == 1):
        return 0
    return 1 if is_near else FAR


def fork(function: Callable[[], object]) -> int:
    """Call the *function* in a child process, which ends after it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            function()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return child


def set_process(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)


def has_ended(child: int) -> bool:
    """Whether this one has. Also reaps the others, which were orphans: some tests wait until a process is gone."""
    with suppress(ChildProcessError):
        while ended := os.waitpid(-1, os.WNOHANG)[0]:
            if ended == child:
                return True
    return False


def end_children() -> None:
    """End all that is left, with the descendants: whose parent has ended is a child of ours."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():
        for child in left:
            os.kill(int(child), signal.SIGKILL)
        os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
