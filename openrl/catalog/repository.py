"""The catalog's one door. What it offers is told by the modules it is made of."""

from openrl.catalog.checkpoints import Checkpoints
from openrl.catalog.database import Database
from openrl.catalog.keys import Keys
from openrl.catalog.samplers import Samplers


class Catalog(Keys, Checkpoints, Samplers):
    """Keys, sessions, runs, samplers and checkpoints in one database; thread-safe, one per process (not across a fork).

    `url` is SQLAlchemy's: `sqlite:///FILE`, `sqlite://` (in memory, for tests), `postgresql://USER:PASSWORD@HOST/NAME`
    (needs the driver psycopg). Raises CatalogUnreachable for one that cannot work; nothing is connected yet.
    """

    def __init__(self, url: str) -> None:
        super().__init__(Database(url))

    def migrate(self) -> None:
        """Make or update the tables; call it once at start. Any number of processes may do so at the same time."""
        self._database.migrate()

    def ping(self) -> None:
        """Raises CatalogUnreachable where the database does not answer."""
        self._database.ping()

    def close(self) -> None:
        self._database.close()
