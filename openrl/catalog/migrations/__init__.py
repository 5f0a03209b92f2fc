"""The tables' history, brought up to date by the program itself: there is no alembic.ini.

A new step is a module in `versions/` that names the one before it; steps are never edited once released.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

from openrl.domain.errors import CatalogUnreachable


def upgrade(connection: Connection, shown_url: str, to: str = "head") -> None:
    """Run the missing steps in the connection's transaction; whoever opened it commits, and keeps others out. `to` is
    the last step, for tests."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, to)
    except CommandError as error:
        raise CatalogUnreachable(shown_url, f"a newer OpenRL made it ({error}); install that one") from error
