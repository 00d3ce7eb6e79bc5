"""Resident memory of hihooi: at rest, for each of many idle clients, and after very many different
statements."""

import time

from slices import pgbench, result, rss_kb
from wire import Connection

CLIENTS = 1000
SETTLE_S = 2
STATEMENTS = 100_000
QUERY = "SELECT abalance FROM pgbench_accounts WHERE aid = 1"


def idle_clients(cluster):
    """1,000 clients that asked one query each and then nothing; the pools are full before."""
    pid = cluster.pids["hihooi"]
    result(pgbench(cluster, "hihooi", 2, 32, "-S"))
    time.sleep(SETTLE_S)
    before = rss_kb(pid)
    clients = []
    try:
        for _ in range(CLIENTS):
            clients.append(Connection(cluster.ports["hihooi"]))
            clients[-1].query(QUERY)
        time.sleep(SETTLE_S)
        during = rss_kb(pid)
    finally:
        for client in clients:
            client.close()
    return {"before_kb": before, "during_kb": during, "each_kb": (during - before) / CLIENTS}


def different_statements(cluster):
    """After so many statements that nobody has seen before, each of its own text."""
    before = rss_kb(cluster.pids["hihooi"])
    client = Connection(cluster.ports["hihooi"])
    for number in range(STATEMENTS):
        client.query(f"SELECT abalance AS a{number} FROM pgbench_accounts WHERE aid = {number}")
    client.close()
    time.sleep(SETTLE_S)
    return {"before_kb": before, "after_kb": rss_kb(cluster.pids["hihooi"])}
