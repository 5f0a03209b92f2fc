"""Alembic runs this file for every command; the connection comes from `upgrade`."""

from alembic import context

from openrl.catalog.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
