"""What the comparison asks of a system."""

from collections.abc import Callable
from pathlib import Path

from peers.answers import Answer
from peers.load import Load
from peers.questions import Question, Row, Supply


class System:
    """A system that holds the data. Calls come in this order: prepare, load, start, those that ask, stop."""

    # As in the table.
    name: str
    # Where its data lie.
    directory: Path

    def prepare(self) -> str:
        """Finds or installs its programs, and returns its version; raises `Unavailable`."""
        raise NotImplementedError

    def load(self, source: Path) -> None:
        """Imports the JSON lines, to the point where every question can be asked."""
        raise NotImplementedError

    def start(self) -> None:
        """Makes it ready to answer."""

    def stop(self) -> None:
        """Ends what was started."""

    def serves(self, row: Row) -> bool:
        """Whether it answers the questions of a row, or makes its export."""
        raise NotImplementedError

    def answer(self, question: Question) -> Answer:
        """Its answer to a question, for comparison."""
        raise NotImplementedError

    def measure(self, supply: Supply, connections: int, seconds: float) -> Load:
        """Asks questions at one connection, then at several."""
        raise NotImplementedError

    def export(self, row: Row, path: Path) -> None:
        """Writes everything it holds to a file: JSON as an array or as lines, tables with `entities.COLUMNS`."""
        raise NotImplementedError

    # Whether a second export of the same is made anew, so that the median of several says something.
    exports_again: bool = True


Make = Callable[[], System]
