"""The interface of a system under comparison."""

from collections.abc import Callable
from pathlib import Path

from peers.answers import Answer
from peers.load import Load
from peers.questions import Question, Row, Supply


class System:
    """A system that stores the data. The order of calls is: prepare, load, start, measurements, stop."""

    # The name in the table.
    name: str
    # The directory of the data.
    directory: Path

    def prepare(self) -> str:
        """Finds or installs the programs and returns the version. Raises `Unavailable` if that is impossible."""
        raise NotImplementedError

    def load(self, source: Path) -> None:
        """Imports the JSON lines, until every question can be answered."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts the system, so that it can answer questions."""

    def stop(self) -> None:
        """Stops all processes that were started."""

    def serves(self, row: Row) -> bool:
        """Returns whether the system supports the questions or the export of a row."""
        raise NotImplementedError

    def answer(self, question: Question) -> Answer:
        """Returns the answer to a question, for comparison."""
        raise NotImplementedError

    def measure(self, supply: Supply, connections: int, seconds: float) -> Load:
        """Measures questions on one connection, and then on several."""
        raise NotImplementedError

    def export(self, row: Row, path: Path) -> None:
        """Writes all entities to a file: JSON as an array or as lines, and tables with `entities.COLUMNS`."""
        raise NotImplementedError

    # Whether a second export is built again, so that the median of several exports is meaningful.
    exports_again: bool = True


Make = Callable[[], System]
