"""SQLAlchemy's engine, sessions and objects, and Alembic's migrations, over psycopg 3."""

import concurrent.futures
import io
import pathlib
import time

from alembic import command
from alembic.config import Config
from outline import OTHER_AUTHORITY, POOL_SIZE, ROUNDS, WORKERS, equal, in_threads, refused, run
from sqlalchemy import (BigInteger, Column, Enum, Index, Integer, Text, create_engine, exc, func,
                        inspect, insert, select, text, update)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Session

# Everything else is in libpq's environment variables. Each thread's connection comes from this pool.
URL = "postgresql+psycopg://"
engine = create_engine(URL, pool_size=POOL_SIZE, max_overflow=0)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "sqlalchemy_accounts"
    id = Column(BigInteger, primary_key=True)
    owner = Column(Text, nullable=False, unique=True)
    balance = Column(Integer, nullable=False, default=0, server_default="0")
    mood = Column(Enum("sad", "happy", name="sqlalchemy_mood"))
    notes = Column(JSONB, server_default="{}")
    __table_args__ = (Index("sqlalchemy_accounts_balance", balance),)


def balance(owner):
    with Session(engine) as session:
        return session.scalar(select(Account.balance).where(Account.owner == owner))


def totals(like):
    with Session(engine) as session:
        return session.execute(select(func.count(), func.sum(Account.balance)).where(Account.owner.like(like))).one()


def login():
    for words, told in (({"password": "wrong"}, "password authentication failed"),
                        ({"sslrootcert": OTHER_AUTHORITY}, "certificate verify failed"),
                        ({"sslmode": "disable"}, "no encryption")):
        with refused(exc.OperationalError, told):
            create_engine(URL, connect_args=words).connect()
    engine.connect().close()


def migration():
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(pathlib.Path(__file__).with_name("alembic_migrations")))
    config.attributes.update(engine=engine, metadata=Base.metadata)
    command.upgrade(config, "head")
    command.downgrade(config, "base")
    equal(inspect(engine).has_table("sqlalchemy_accounts"), False)
    command.upgrade(config, "accounts")
    with Session(engine) as session, session.begin():  # what the next migration finds
        session.execute(text("INSERT INTO sqlalchemy_accounts (holder, balance) VALUES (' old ', 7)"))
    command.upgrade(config, "head")
    equal(balance("old"), 7)
    with Session(engine) as session, session.begin():
        session.delete(session.scalars(select(Account)).one())
    # The models are as the migrations left the tables.
    command.check(config)
    equal([column["name"] for column in inspect(engine).get_columns("sqlalchemy_accounts")],
          ["id", "owner", "balance", "mood", "notes"])


def crud():
    with Session(engine) as session, session.begin():
        session.add_all([Account(owner="ada", balance=10, mood="happy"), Account(owner="bob", balance=20, mood="happy"),
                         Account(owner="eve", balance=30, mood="happy")])
    with Session(engine) as session, session.begin():
        bob = session.scalars(select(Account).where(Account.owner == "bob")).one()
        equal((bob.balance, bob.mood), (20, "happy"))
        bob.balance = 25
        session.delete(session.scalars(select(Account).where(Account.owner == "eve")).one())
    with Session(engine) as session:
        found = session.execute(select(Account.owner, Account.balance).order_by(Account.id)).all()
    equal(found, [("ada", 10), ("bob", 25)])


def prepared():
    with create_engine(URL, connect_args={"prepare_threshold": 0}).connect() as connection:
        for _ in range(10):
            equal([connection.scalar(select(Account.balance).where(Account.owner == owner))
                   for owner in ("ada", "bob", "nobody")], [10, 25, None])
        count = text("SELECT count(*) FROM pg_prepared_statements"
                     " WHERE statement LIKE '%accounts.owner = $1%' AND statement NOT LIKE '%pg_%'")
        equal(connection.scalar(count), 1)


def batch():
    with Session(engine) as session, session.begin():
        session.execute(insert(Account), [{"owner": f"batch {n}", "balance": n} for n in range(100)])
        # Many rows in a statement that returns what they got.
        more = [Account(owner=f"more {n}", balance=n) for n in range(100)]
        session.add_all(more)
        session.flush()
        equal(len({account.id for account in more}), 100)
    equal(totals("batch%"), (100, 4950))


def copy():
    # By the driver's own connection: SQLAlchemy has no COPY.
    with engine.begin() as connection, connection.connection.cursor() as cursor:
        with cursor.copy("COPY sqlalchemy_accounts (owner, balance) FROM STDIN") as to:
            for n in range(1000):
                to.write_row((f"copy {n}", n))
    equal(totals("copy%"), (1000, 499500))
    return "the driver's, SQLAlchemy has none"


def retry():
    attempts = 0
    while True:
        attempts += 1
        try:
            with Session(engine.execution_options(isolation_level="SERIALIZABLE")) as session, session.begin():
                ada = session.scalars(select(Account).where(Account.owner == "ada")).one()
                if attempts == 1:  # another session is faster
                    with Session(engine) as other, other.begin():
                        other.execute(update(Account).where(Account.owner == "ada")
                                      .values(balance=Account.balance + 100))
                ada.balance += 1
            break
        except exc.OperationalError as error:
            equal(error.orig.sqlstate, "40001")
    with Session(engine) as session, session.begin():
        with refused(exc.IntegrityError, "sqlalchemy_accounts_owner_key"), session.begin_nested():
            session.add(Account(owner="ada"))
            session.flush()
        session.add(Account(owner="ada again"))
    equal(attempts, 2)
    equal((balance("ada"), balance("ada again")), (111, 0))


def cancel():
    began = time.monotonic()
    with engine.connect() as connection, concurrent.futures.ThreadPoolExecutor(1) as threads:
        cancelled = threads.submit(lambda: (time.sleep(0.3), connection.connection.cancel_safe()))
        with refused(exc.OperationalError, "canceling statement due to user request"):
            connection.execute(text("SELECT pg_sleep(30)"))
        cancelled.result()  # its failure would be ours
        connection.rollback()
        equal(connection.scalar(text("SELECT 1")), 1)
    assert time.monotonic() - began < 10


def pool():
    equal(in_threads(lambda n: (n, balance("bob")), 20), [(n, 25) for n in range(20)])
    # A transaction that failed leaves nothing to who gets the connection next.
    with refused(exc.DataError, "division by zero"), Session(engine) as session:
        session.execute(update(Account).where(Account.owner == "bob").values(balance=0))
        session.execute(text("SELECT 1 / 0"))
    equal(balance("bob"), 25)
    assert engine.pool.checkedin() <= POOL_SIZE and engine.pool.checkedout() == 0


def together():
    with Session(engine) as session, session.begin():
        session.add(Account(owner="shared"))

    def work(_):
        for _ in range(ROUNDS):
            with Session(engine) as session, session.begin():
                written = session.scalar(update(Account).where(Account.owner == "shared")
                                         .values(balance=Account.balance + 1).returning(Account.balance))
            read = balance("shared")
            assert read >= written, f"read {read} after having written {written}"
    in_threads(work, WORKERS)
    equal(balance("shared"), WORKERS * ROUNDS)


run(globals())
