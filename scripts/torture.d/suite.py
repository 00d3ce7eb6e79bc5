"""The tests: staged for servers of another user, run as pg_regress runs them, and compared with
what is expected, in the way of src/test/regress/pg_regress.c and pg_regress_main.c."""

import os
import re
import shutil
import subprocess
import time

# The suite expects this name; where the replicated database is called otherwise, its files are
# rewritten.
EXPECTED_DATABASE = "regression"
TEST_SECONDS_MAX = 300
ALTERNATIVES = ["", *(f"_{number}" for number in range(10))]

# As pg_regress sets up its database.
DATABASE_SETTINGS = [
    ("lc_messages", "C"),
    ("lc_monetary", "C"),
    ("lc_numeric", "C"),
    ("lc_time", "C"),
    ("bytea_output", "hex"),
    ("timezone_abbreviations", "Default"),
]

# hihooi publishes all tables, so psql's \d+ lists its publication for each:
#     Publications:
#         "hihooi"
# The name is removed, and the heading if no other publication follows.
PUBLICATION = re.compile(r'^    "hihooi"\n', re.M)
EMPTY_PUBLICATIONS = re.compile(r"^Publications:\n(?!    )", re.M)
# And it gives tables without a usable key this identity. Tests of identities expect such lines, so
# they are removed from both sides.
IDENTITY = re.compile(r"^Replica Identity: FULL\n", re.M)


def schedule(files):
    """Names in order, and those whose result pg_regress ignores."""
    order, ignored = [], set()
    for line in (files / "parallel_schedule").read_text().splitlines():
        kind, _, names = line.partition(":")
        if kind == "test":
            order += names.split()
        elif kind == "ignore":
            ignored |= set(names.split())
    return order, ignored


class Tests:
    """The suite's files where servers of another user can read them, and its results."""

    def __init__(self, suite, work, pg_bin, database):
        self.work, self.pg_bin, self.database = work, pg_bin, database
        # Some packages of servers have none; an older one will do, too.
        self.psql = pg_bin / "psql" if (pg_bin / "psql").exists() else "psql"
        self.time_zone = suite.time_zone
        self.order, self.ignored = schedule(suite.files)
        self.files = work / "regress"
        for part in ("data", "sql", "expected"):
            shutil.copytree(suite.files / part, self.files / part)
        shutil.copytree(suite.libraries, work / "lib")
        for path in work.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        if database != EXPECTED_DATABASE:
            for path in [*self.files.glob("sql/*.sql"), *self.files.glob("expected/*.out")]:
                path.write_bytes(self.renamed(path.read_bytes()))
        self.clear_results()

    def renamed(self, text):
        """With the name of our database; in tables of psql the cell keeps its width."""
        old, new = EXPECTED_DATABASE.encode(), self.database.encode()

        def cell(found):
            return new.ljust(len(old)) + found[1] if found[1] else new

        return re.sub(rb"\b" + old + rb"\b( +\|)?", cell, text)

    def clear_results(self):
        """Servers write there too (COPY … TO)."""
        results = self.work / "results"
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
        results.chmod(0o777)

    def environment(self, port, application="pg_regress"):
        """Only this: nothing of ours changes what psql prints."""
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.work),
            "LC_MESSAGES": "C",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(port),
            "PGUSER": "postgres",
            "PGAPPNAME": application,
            "PGTZ": self.time_zone,
            "PGDATESTYLE": "Postgres, MDY",
            "PGOPTIONS": "-c intervalstyle=postgres_verbose",
            "PG_ABS_SRCDIR": str(self.files),
            "PG_ABS_BUILDDIR": str(self.work),
            "PG_LIBDIR": str(self.work / "lib"),
            "PG_DLSUFFIX": ".so",
        }

    def set_up_database(self, port):
        """What pg_regress does before the first test."""
        commands = "".join(
            f"ALTER DATABASE {self.database} SET {name} TO '{value}';\n"
            for name, value in DATABASE_SETTINGS
        )
        psql = [self.psql, "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.database]
        subprocess.run(
            psql, input=commands, text=True, env=self.environment(port), check=True
        )

    def run(self, name, port):
        """Runs a test: its output, and how many seconds it took (None: it had to be ended)."""
        psql = [self.psql, "-X", "-a", "-q", "-d", self.database]
        psql += ["-v", "HIDE_TABLEAM=on", "-v", "HIDE_TOAST_COMPRESSION=on"]
        start = time.monotonic()
        with (self.files / f"sql/{name}.sql").open() as script:
            process = subprocess.Popen(
                psql,
                stdin=script,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.work,
                env=self.environment(port, f"pg_regress/{name}"),
                start_new_session=True,
            )
        try:
            output, _ = process.communicate(timeout=TEST_SECONDS_MAX)
            return output, time.monotonic() - start
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0], None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def difference(self, name, output):
        """The shortest difference from one of the expected outputs; empty if there is none."""
        return self.shortest_difference(
            [self.files / f"expected/{name}{which}.out" for which in ALTERNATIVES], output
        )

    def shortest_difference(self, paths, output):
        actual = filtered(output)
        best = None
        for path in paths:
            if not path.exists():
                continue
            expected = filtered(path.read_bytes())
            if expected == actual:
                return ""
            text = self.diff(expected, actual)
            if best is None or text.count("\n") < best.count("\n"):
                best = text
        return best if best is not None else "no expected output\n"

    def diff(self, expected, actual):
        sides = []
        for side, text in (("expected", expected), ("actual", actual)):
            sides.append(self.work / side)
            sides[-1].write_bytes(text.encode("utf-8", "surrogateescape"))
        done = subprocess.run(["diff", "-U3", *sides], capture_output=True)
        # The first two lines name the files.
        return done.stdout.decode("utf-8", "replace").split("\n", 2)[-1]


def filtered(output):
    """Output without what only tells that the database is published."""
    text = output.decode("utf-8", "surrogateescape")
    text = EMPTY_PUBLICATIONS.sub("", PUBLICATION.sub("", text))
    return IDENTITY.sub("", text)
