"""What a run found: a line for each test, a file of JSON lines, and the summary."""

import json
import os
import shutil
import time

# How the output of a test compares.
OK = "ok"  # as expected
REORDERED = "other order"  # rows of queries without ORDER BY came as a replica has them
AS_PLAIN = "as plain"  # not as expected, but just as on the plain server
DIFFERS_TOO = "differs too"  # the plain server's differs as well, in another way
LISTED = "listed"  # it differs, which `expected-differences` explains
IGNORED = "ignored"  # it differs, but pg_regress ignores this test
DIFFERS = "DIFFERS"
HUNG = "HUNG"
BAD_OUTPUTS = (DIFFERS, HUNG)

SERVING, STOPPED = "serving", "STOPPED"
EQUAL, NOT_ASKED, STANDING = "equal", "not asked", "as before"
GOOD_VERDICTS = (EQUAL, NOT_ASKED, STANDING)

# Tests that are shown by name where times are kept.
ADDED_MAX = 12


class Report:
    """Collects records, one a test, and writes them as they come. `about` the run: what its first
    line tells; `tests` is how many there will be."""

    def __init__(self, folder, about):
        self.folder, self.count = folder, about["tests"]
        self.records = []
        self.file = (folder / "results.jsonl").open("w")
        self.write({"run": about})

    def write(self, record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()

    def add(self, record):
        """Adds the record of a test."""
        self.records.append(record)
        self.write(record)
        print(line(record, len(self.records), self.count), flush=True)
        for reason in record["reasons"]:
            print(f"{'':10}{reason}", flush=True)

    def is_good(self):
        """Whether all ran, outputs differ only where they may, and replicas always followed."""
        return self.is_complete() and not any(
            record["output"] in BAD_OUTPUTS
            or record["replicas"] == STOPPED
            or record["verify"] not in GOOD_VERDICTS
            for record in self.records
        )

    def is_complete(self):
        return len(self.records) == self.count

    def finish(self, seconds, listed):
        """Writes and prints the summary."""
        text = "\n".join(self.summary(seconds, listed)) + "\n"
        (self.folder / "summary.txt").write_text(text)
        print("\n" + text, end="")
        through, plain = self.seconds()
        self.write(
            {
                "summary": {
                    "good": self.is_good(),
                    "tests": len(self.records),
                    "seconds": round(seconds, 1),
                    "hihooi_seconds": round(through, 2),
                    "plain_seconds": round(plain, 2),
                }
            }
        )
        self.file.close()

    def keep(self, runs, about):
        """Keeps the times in a new folder of `runs`; earlier ones stay."""
        name = time.strftime("%Y-%m-%d-torture")
        names = [name, *(f"{name}-{number}" for number in range(2, 100))]
        folder = next(runs / name for name in names if not (runs / name).exists())
        folder.mkdir(parents=True)
        shutil.copy(self.folder / "results.jsonl", folder)
        through, plain = self.seconds()
        both = [r for r in self.records if r["seconds"] is not None and r["plain_seconds"]]
        added = sorted(both, key=lambda r: r["plain_seconds"] - r["seconds"])[:ADDED_MAX]
        lines = [
            f"# {folder.name}",
            "",
            "PostgreSQL's own regression suite through hihooi and on a plain server with the same settings, test by test,",
            "without the checks in between. Made by `make torture`. The plain server's times may be of an earlier run.",
            "",
            *(f"- {key.replace('_', ' ')}: {value}" for key, value in about.items()),
            f"- {os.cpu_count()} processors; load average at the end: {os.getloadavg()[0]:.1f}",
            f"- {'good' if self.is_good() else 'NOT good'} (see the summary that the run printed)",
            "",
            "| | hihooi, s | plain, s | ratio |",
            "|---|---|---|---|",
            row("all that ended on both", through, plain),
            *(row(r["test"], r["seconds"], r["plain_seconds"]) for r in added),
            "",
            "The tests to which hihooi adds most; all are in `results.jsonl`.",
        ]
        (folder / "README.md").write_text("\n".join(lines) + "\n")

    def seconds(self):
        """Through hihooi and on the plain server, of the tests that ended on both."""
        both = [r for r in self.records if r["seconds"] is not None and r["plain_seconds"]]
        return sum(r["seconds"] for r in both), sum(r["plain_seconds"] for r in both)

    def summary(self, seconds, listed):
        through, plain = self.seconds()
        ratio = f", {through / plain:.2f} times as long" if plain else ""
        yield (
            f"{len(self.records)} tests in {seconds:.0f} s, checks included;"
            f" the suite's own time: {through:.1f} s through hihooi,"
            f" {plain:.1f} s on the plain server{ratio}"
        )
        yield ""
        for output in (OK, REORDERED, AS_PLAIN, DIFFERS_TOO, LISTED, IGNORED, DIFFERS, HUNG):
            yield from self.named(f"output {output}", "output", output, show=output != OK)
        yield from self.named("replicas serve all", "replicas", SERVING, show=False)
        yield from self.named("replicas stopped", "replicas", STOPPED)
        verdicts = dict.fromkeys([EQUAL, *(record["verify"] for record in self.records)])
        for verdict in verdicts:
            show = verdict not in GOOD_VERDICTS
            yield from self.named(f"verify {verdict}", "verify", verdict, show)
        superfluous = [r["test"] for r in self.records if r["output"] == OK and r["test"] in listed]
        if superfluous:
            yield f"listed in expected-differences, but as expected: {' '.join(superfluous)}"
        troubles = [record for record in self.records if record["reasons"]]
        if troubles:
            yield ""
            for record in troubles:
                yield f"{record['test']}:"
                yield from (f"    {reason}" for reason in record["reasons"])
        yield ""
        if not self.is_complete():
            yield f"broken off after {len(self.records)} of {self.count} tests"
        yield "good" if self.is_good() else "NOT good"
        yield f"outputs, differences and results.jsonl: {self.folder}"

    def named(self, title, key, value, show=True):
        """A line of the tests with that value, none if there are none."""
        names = [record["test"] for record in self.records if record[key] == value]
        if names:
            yield f"{title + ':':28} {len(names):3}  {' '.join(names) if show else ''}".rstrip()


def row(name, through, plain):
    """A line of the table of times."""
    return f"| {name} | {through:.1f} | {plain:.1f} | {through / plain:.1f} |"


def line(record, number, count):
    verdict = record["output"]
    if record["replicas"] != SERVING:
        verdict += f", replicas {record['replicas']}"
    if record["verify"] not in GOOD_VERDICTS:
        verdict += f", verify {record['verify'].upper()}"
    seconds = "     -" if record["seconds"] is None else f"{record['seconds']:6.2f}"
    plain = "" if record["plain_seconds"] is None else f" (plain {record['plain_seconds']:.2f})"
    return f"{number:4}/{count} {record['test']:24} {seconds} s{plain:16} {verdict}"
