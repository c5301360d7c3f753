"""Load tests: the latency of a question on one connection, and the questions per second on several connections."""

import json
import multiprocessing
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from peers.programs import Command
from peers.questions import Question, Row, Supply, endless

# Long enough that all data for the questions is in memory, in every system.
WARM_UP_S = 5.0

# The maximum length of a measurement if a single answer takes longer than the regular length.
MAX_DURATION_S = 60.0

Ask = Callable[[Question], object]


@dataclass(frozen=True)
class Load:
    """The results of a load test."""

    median_ms: float
    per_second: float


@dataclass(frozen=True)
class Wrk:
    """The load generator for HTTP: one thread in C for eight connections."""

    program: Path
    environment: dict[str, str]

    def run(self, port: int, targets: list[str], repeats: bool, connections: int, seconds: float) -> dict[str, float]:
        """Requests the targets for a while, or each of them once. Raises an error if any response fails."""
        threads = max(connections // 8, 1)
        with tempfile.NamedTemporaryFile("w", suffix=".targets") as file:
            file.write("".join(f"{target}\n" for target in targets))
            file.flush()
            command: Command = [
                self.program,
                f"-t{threads}",
                f"-c{connections}",
                f"-d{max(round(seconds), 1)}s",
            ]
            command += ["--timeout=60s", "-s", Path(__file__).with_name("wrk.lua"), f"http://127.0.0.1:{port}", "--"]
            command += [file.name, str(threads), "again" if repeats else "once"]
            ran = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"wrk: {ran.stderr or ran.stdout}")
        measured = json.loads(ran.stdout.splitlines()[-1])
        if measured["refused"] or measured["broken"]:
            raise RuntimeError(f"requests failed, as those for {targets[0]}: {measured}")
        return measured

    def measure(
        self, port: int, target: Callable[[Question], str], supply: Supply, connections: int, seconds: float
    ) -> Load:
        """Measures a warm server on one connection, and then on several."""
        measured = []
        for clients, share in ((1, 0.4), (connections, 1.0)):
            targets = [target(question) for question in supply.part(share)]
            duration = seconds
            found = self.run(port, targets, supply.row.repeats, clients, duration)
            # If a request takes longer, the time is extended until every connection has had an answer.
            while found["requests"] < clients and duration < MAX_DURATION_S:
                if not supply.row.repeats and found["asked"] >= len(targets):
                    break
                duration = min(duration * 4, MAX_DURATION_S)
                found = self.run(port, targets, supply.row.repeats, clients, duration)
            if not found["requests"]:
                raise RuntimeError(f"no answer in {duration:.0f} s to {targets[0]}")
            measured.append(found)
            supply.asked(int(found["asked"]))
        one, several = measured
        return Load(one["median_us"] / 1e3, several["requests"] / several["seconds"])


def timed(ask: Ask, row: Row, part: list[Question], seconds: float) -> list[float]:
    """Asks one question after the other for a while. Returns the seconds of each."""
    durations: list[float] = []
    deadline = time.perf_counter() + seconds
    for question in endless(row, part):
        began = time.perf_counter()
        ask(question)
        ended = time.perf_counter()
        durations.append(ended - began)
        if ended > deadline:
            break
    return durations


def warm_up(ask: Ask, supply: Supply) -> None:
    """Asks some questions, so that the data that all of them need is in memory."""
    supply.asked(len(timed(ask, supply.row, supply.part(0.1), WARM_UP_S)))


def one_at_a_time(ask: Ask, supply: Supply, seconds: float) -> float:
    """Warms up and measures on one connection. Returns the median in milliseconds."""
    warm_up(ask, supply)
    durations = timed(ask, supply.row, supply.part(0.4), seconds)
    supply.asked(len(durations))
    return statistics.median(durations) * 1e3


def shares(row: Row, part: list[Question], workers: int) -> list[list[Question]]:
    """Returns the questions of each worker. Repeated questions start at different positions."""
    if not row.repeats:
        return [part[number::workers] for number in range(workers)]
    begins = [len(part) * number // workers for number in range(workers)]
    return [part[begin:] + part[:begin] for begin in begins]


def _loop(ask: Ask, row: Row, part: list[Question], seconds: float) -> Iterator[tuple[int, float, float]]:
    began = time.perf_counter()
    asked = len(timed(ask, row, part, seconds)) if part else 0
    yield asked, began, time.perf_counter()


def _rate(results: list[tuple[int, float, float]]) -> float:
    total = sum(asked for asked, _, _ in results)
    return total / (max(ended for _, _, ended in results) - min(began for _, began, _ in results))


def by_threads(open_ask: Callable[[Row], Ask], supply: Supply, connections: int, seconds: float) -> float:
    """Returns the requests per second of several threads, each with a separate connection."""
    row = supply.row
    results: list[tuple[int, float, float]] = []
    asks = [open_ask(row) for _ in range(connections)]

    def work(ask: Ask, part: list[Question]) -> None:
        results.extend(_loop(ask, row, part, seconds))

    parts = shares(row, supply.part(1.0), connections)
    threads = [threading.Thread(target=work, args=each) for each in zip(asks, parts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) < connections:
        raise RuntimeError(f"{row.title}: a thread failed")
    return _rate(results)


def by_processes(open_ask: Callable[[Row], Ask], supply: Supply, connections: int, seconds: float) -> float:
    """Returns the requests per second of several processes, each with a separate connection."""
    row = supply.row
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(connections), context.SimpleQueue()

    def work(part: list[Question]) -> None:
        ask = open_ask(row)
        barrier.wait(60)
        for result in _loop(ask, row, part, seconds):
            results.put(result)

    parts = shares(row, supply.part(1.0), connections)
    processes = [context.Process(target=work, args=(part,)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"{row.title}: a process failed")
    return _rate([results.get() for _ in processes])
