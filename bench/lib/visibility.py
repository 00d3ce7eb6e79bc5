"""From acknowledged to visible at a replica, under load, seen from outside.

A probe updates a row of its own through hihooi. From the moment it has the acknowledgement it
asks both replicas directly, in turn, until each shows the new value. hihooi's own figures (SHOW
REPLICAS: from the primary's commit time stamp, which lies before its flush of the WAL) are
sampled beside it every second.
"""

import threading
import time

from machine import Busy
from slices import pgbench, result
from wire import Connection

PAUSE_S = 0.02  # between two probes
PROBE_SECONDS_MAX = 10  # then a value counts as lost


class Probe(threading.Thread):
    """Milliseconds by replica until each of its updates was visible."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.writer = Connection(cluster.ports["hihooi"])
        self.readers = {
            site: Connection(port) for site, port in cluster.sites.items() if site != "primary"
        }
        self.ms = {site: [] for site in self.readers}
        self.lost = 0
        self.failure = None
        self.done = threading.Event()

    def run(self):
        try:
            value = int(self.writer.query("SELECT n FROM bench_probe")[0][0])
            while not self.done.is_set():
                value += 1
                self.writer.query(f"UPDATE bench_probe SET n = {value}")
                self._watch(value, time.perf_counter())
                self.done.wait(PAUSE_S)
        except Exception as failure:  # told by `stop`, in the main thread
            self.failure = failure

    def _watch(self, value, acknowledged):
        waiting = list(self.readers)
        while waiting:
            for site in list(waiting):
                shown = self.readers[site].query("SELECT n FROM bench_probe")
                ms = (time.perf_counter() - acknowledged) * 1e3
                if int(shown[0][0]) >= value:
                    self.ms[site].append(ms)
                    waiting.remove(site)
                elif ms > PROBE_SECONDS_MAX * 1e3:
                    self.lost += 1
                    waiting.remove(site)

    def stop(self):
        self.done.set()
        self.join()
        if self.failure:
            raise self.failure


def prepare(cluster):
    """The probe's table, at every site."""
    connection = Connection(cluster.ports["hihooi"])
    connection.query("CREATE TABLE bench_probe (id int PRIMARY KEY, n bigint)")
    connection.query("INSERT INTO bench_probe VALUES (1, 0)")
    connection.close()
    cluster.catch_up()


def under_load(cluster, seconds, *options):
    """TPC-B-like load of 8 clients; the probe; SHOW REPLICAS every second."""
    load = pgbench(cluster, "hihooi", seconds, 8, *options)
    time.sleep(1)
    probe = Probe(cluster)
    probe.start()
    busy = Busy(cluster)
    samples, start = [], time.monotonic()
    while time.monotonic() - start < seconds - 2:
        time.sleep(1)
        for row in cluster.admin("SHOW REPLICAS"):
            samples.append([round(time.monotonic() - start, 2), *row])
    shares = busy.shares()
    probe.stop()
    return {
        "processors": shares,
        "tps": result(load)["tps"],
        "probe_ms": probe.ms,
        "lost": probe.lost,
        "samples": samples,
        "caught_up_s": cluster.catch_up(),
    }
