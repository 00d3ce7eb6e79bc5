"""The table, as the next migration finds it."""

import sqlalchemy
from alembic import op

revision = "accounts"
down_revision = None


def upgrade():
    op.create_table(
        "sqlalchemy_accounts",
        sqlalchemy.Column("id", sqlalchemy.BigInteger, primary_key=True),
        sqlalchemy.Column("holder", sqlalchemy.Text, nullable=False),
        sqlalchemy.Column("balance", sqlalchemy.SmallInteger, server_default="0"),
        sqlalchemy.Column("mood", sqlalchemy.Enum("sad", "happy", name="sqlalchemy_mood")))
    op.create_index("sqlalchemy_accounts_balance", "sqlalchemy_accounts", ["balance"])


def downgrade():
    op.drop_table("sqlalchemy_accounts")
    op.execute("DROP TYPE sqlalchemy_mood")
