"""Django's migrations (also those that come with it) and models, over psycopg 3 with its pool."""

import concurrent.futures
import os
import time

import django
from django.conf import settings
from outline import OTHER_AUTHORITY, POOL_SIZE, ROUNDS, WORKERS, equal, in_threads, refused, run


def database(**options):
    # The rest is in libpq's environment variables.
    return {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"],
            "PASSWORD": os.environ["PGPASSWORD"], "OPTIONS": options}


# What a new project has.
COME_WITH_IT = ["admin", "auth", "contenttypes", "sessions"]
settings.configure(
    INSTALLED_APPS=["django_app", *(f"django.contrib.{name}" for name in COME_WITH_IT)],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        "default": database(pool={"min_size": 1, "max_size": POOL_SIZE}),
        "serializable": database(isolation_level=4),
        "prepared": database(server_side_binding=True, prepare_threshold=0),
        "wrong": database() | {"PASSWORD": "wrong"},
        "untrusted": database(sslrootcert=OTHER_AUTHORITY),
        "plain": database(sslmode="disable"),
    },
)
django.setup()

from django.contrib.auth.models import Permission  # noqa: E402  (needs the settings)
from django.core.management import call_command  # noqa: E402
from django.db import DataError, IntegrityError, OperationalError, connection, connections, transaction  # noqa: E402
from django.db.models import Count, F, Sum  # noqa: E402
from django_app.models import Account  # noqa: E402


def balance(owner):
    return Account.objects.get(owner=owner).balance


def totals(prefix):
    found = Account.objects.filter(owner__startswith=prefix).aggregate(Count("pk"), Sum("balance"))
    return found["pk__count"], found["balance__sum"]


def login():
    for name, told in (("wrong", "password authentication failed"), ("untrusted", "certificate verify failed"),
                       ("plain", "no encryption")):
        with refused(OperationalError, told):
            connections[name].ensure_connection()
    connection.ensure_connection()


def migration():
    for name in ("django_app", *COME_WITH_IT):
        call_command("migrate", name, "zero", verbosity=0)
    call_command("migrate", verbosity=0)
    # Behind its migrations Django fills this table: four permissions of each model.
    equal(Permission.objects.filter(content_type__app_label="django_app").count(), 4)
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, "django_accounts")
    equal([column.name for column in described], ["id", "owner", "balance", "mood", "notes"])
    # The models are as the migrations left the tables.
    call_command("makemigrations", "django_app", check=True, verbosity=0)


def crud():
    for owner, amount in (("ada", 10), ("bob", 20), ("eve", 30)):
        Account.objects.create(owner=owner, balance=amount, mood="happy", notes={"n": amount})
    bob = Account.objects.get(owner="bob")
    equal((bob.balance, bob.mood, bob.notes), (20, "happy", {"n": 20}))
    bob.balance = 25
    bob.save()
    equal(Account.objects.filter(owner="eve").delete()[0], 1)
    equal(list(Account.objects.order_by("pk").values_list("owner", "balance")), [("ada", 10), ("bob", 25)])


def prepared():
    own = Account.objects.using("prepared")
    for _ in range(10):
        equal([own.filter(owner=owner).values_list("balance", flat=True).first() for owner in ("ada", "bob", "nobody")],
              [10, 25, None])
    with connections["prepared"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements"
                       " WHERE statement LIKE '%\"owner\" = $1%' AND statement NOT LIKE '%pg_%'")
        equal(cursor.fetchone(), (1,))
    connections["prepared"].close()


def batch():
    made = Account.objects.bulk_create([Account(owner=f"batch {n}", balance=n) for n in range(100)], batch_size=30)
    equal(len({account.pk for account in made}), 100)
    equal(totals("batch"), (100, 4950))


def copy():
    # By the driver's own cursor: Django has no COPY.
    with connection.cursor() as cursor, cursor.copy("COPY django_accounts (owner, balance, notes) FROM STDIN") as to:
        for n in range(1000):
            to.write_row((f"copy {n}", n, "{}"))
    equal(totals("copy"), (1000, 499500))
    return "the driver's, Django has none"


def retry():
    attempts = 0
    while True:
        attempts += 1
        try:
            with transaction.atomic(using="serializable"):
                ada = Account.objects.using("serializable").get(owner="ada")
                if attempts == 1:  # another session is faster
                    Account.objects.filter(owner="ada").update(balance=F("balance") + 100)
                ada.balance += 1
                ada.save()
            break
        except OperationalError as error:
            equal(error.__cause__.sqlstate, "40001")
    connections["serializable"].close()
    with transaction.atomic():
        with refused(IntegrityError, "django_accounts_owner"), transaction.atomic():  # a savepoint
            Account.objects.create(owner="ada")
        Account.objects.create(owner="ada again")
    equal(attempts, 2)
    equal((balance("ada"), balance("ada again")), (111, 0))


def cancel():
    began = time.monotonic()
    with connection.cursor() as cursor, concurrent.futures.ThreadPoolExecutor(1) as threads:
        own = connection.connection
        cancelled = threads.submit(lambda: (time.sleep(0.3), own.cancel_safe()))
        with refused(OperationalError, "canceling statement due to user request"):
            cursor.execute("SELECT pg_sleep(30)")
        cancelled.result()  # its failure would be ours
        cursor.execute("SELECT 1")
        equal(cursor.fetchone(), (1,))
    assert time.monotonic() - began < 10


def returning(work):
    """In a thread: gives its connection back to the pool at the end, as a request does."""
    def and_close(n):
        try:
            return work(n)
        finally:
            connection.close()
    return and_close


def pool():
    equal(in_threads(returning(lambda n: (n, balance("bob"))), 20), [(n, 25) for n in range(20)])
    # A transaction that failed leaves nothing to who gets the connection next.
    with refused(DataError, "division by zero"), transaction.atomic(), connection.cursor() as cursor:
        Account.objects.filter(owner="bob").update(balance=0)
        cursor.execute("SELECT 1 / 0")
    equal(balance("bob"), 25)
    assert len(connection.pool._pool) <= POOL_SIZE


def together():
    Account.objects.create(owner="shared")

    def once():
        with transaction.atomic():
            shared = Account.objects.select_for_update().get(owner="shared")
            shared.balance += 1
            shared.save()
        connection.close()  # the pool gives any connection for the next
        read = balance("shared")
        assert read >= shared.balance, f"read {read} after having written {shared.balance}"
    in_threads(returning(lambda _: [once() for _ in range(ROUNDS)]), WORKERS)
    equal(balance("shared"), WORKERS * ROUNDS)


run(globals())
# Its threads would be waited for.
connection.close_pool()
