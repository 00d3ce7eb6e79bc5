"""Runs migrations: Alembic reads it before each command."""

from alembic import context

own = context.config.attributes
with own["engine"].connect() as connection:
    context.configure(
        connection=connection, target_metadata=own["metadata"], version_table="sqlalchemy_version",
        # Other programs have tables there, too.
        include_name=lambda name, kind, _: kind != "table" or name.startswith("sqlalchemy_"))
    with context.begin_transaction():
        context.run_migrations()
