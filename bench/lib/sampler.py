"""Why reads run where they run: a client beside the load runs the load's reads, and asks where each of them ran.

`SHOW hihooi.last_route` is about the session's own last statement, so pgbench's own reads can't be asked about.
"""

import collections
import re
import threading

from wire import Connection

NAME = r"(?<!:):([a-z]+)"  # but not of a type, after ::
PAUSE_S = 0.002  # between two reads


class Sampler(threading.Thread):
    """Runs groups of reads in turn, each a list of (name, text with :names of values), until `stop`: as prepared
    statements with a parameter for each :name, like pgbench.

    `values()` gives values for one group, `learn` what a read's first value adds to them.
    """

    def __init__(self, port, groups, values, learn, granularity="range"):
        super().__init__(daemon=True)
        self.connection = Connection(port)
        self.connection.query(f"SET hihooi.granularity = '{granularity}'")
        self.groups, self.values, self.learn = groups, values, learn
        self.statements = {}
        for name, text in {read for group in groups for read in group}:
            self._prepare(name, text)
        self.counts = collections.Counter()
        self.examples = {}
        self.failure = None
        self.done = threading.Event()

    def _prepare(self, name, text):
        names = re.findall(NAME, text)
        numbers = iter(range(1, len(names) + 1))
        prepared = re.sub(NAME, lambda _: f"${next(numbers)}", text)
        self.connection.prepare(name, prepared)
        self.statements[name] = (prepared, names)

    def run(self):
        try:
            while not self.done.is_set():
                for group in self.groups:
                    self._group(group)
        except Exception as failure:  # told by `stop`, in the main thread
            self.failure = failure

    def _group(self, group):
        values = self.values()
        for name, _ in group:
            text, names = self.statements[name]
            given = [values[wanted] for wanted in names]
            rows = self.connection.run(name, given)
            self._note(name, f"{text} {given}")
            if rows and name in self.learn:
                values.update(self.learn[name](rows[0][0]))
            self.done.wait(PAUSE_S)

    def _note(self, name, statement):
        route = self.connection.query("SHOW hihooi.last_route")[0][0]
        fields = dict(field.split("=", 1) for field in route.split())
        where = "primary" if fields["site"] == "primary" else "replica"
        detail = ""
        if fields["reason"] in ("not_fresh", "waited"):
            detail = self.connection.query("SHOW hihooi.last_route_detail")[0][0] or ""
        kind = (name, where, fields["class"], fields["reason"], re.sub(r"\d+", "N", detail))
        self.counts[kind] += 1
        if kind not in self.examples:
            self.examples[kind] = {"statement": statement, "route": route, "detail": detail}

    def stop(self):
        """What was seen: a dict for each read and route, with an example."""
        self.done.set()
        self.join()
        self.connection.close()
        if self.failure:
            raise self.failure
        names = ("read", "where", "class", "reason", "detail")
        return [
            {**dict(zip(names, kind)), "count": count, "example": self.examples[kind]}
            for kind, count in self.counts.most_common()
        ]
