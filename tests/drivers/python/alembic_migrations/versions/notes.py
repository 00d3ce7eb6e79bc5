"""A column is added, another one renamed, and the rows changed."""

import sqlalchemy
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "notes"
down_revision = "accounts"
TABLE = "sqlalchemy_accounts"


def upgrade():
    op.add_column(TABLE, sqlalchemy.Column("notes", JSONB, server_default="{}"))
    op.alter_column(TABLE, "holder", new_column_name="owner")
    op.alter_column(TABLE, "balance", type_=sqlalchemy.Integer, nullable=False)
    op.execute(f"UPDATE {TABLE} SET owner = trim(owner)")
    op.create_unique_constraint(f"{TABLE}_owner_key", TABLE, ["owner"])


def downgrade():
    op.drop_constraint(f"{TABLE}_owner_key", TABLE)
    op.alter_column(TABLE, "balance", type_=sqlalchemy.SmallInteger, nullable=True)
    op.alter_column(TABLE, "owner", new_column_name="holder")
    op.drop_column(TABLE, "notes")
