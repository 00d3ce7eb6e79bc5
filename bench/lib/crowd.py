"""Many clients of which few are active: 32 at work among 1,000, the others idle behind one query each."""

import slices
from wire import Connection

CLIENTS = 1000
ACTIVE = 32
QUERY = "SELECT abalance FROM pgbench_accounts WHERE aid = 1"


def measure(cluster, variants, protocol, rounds, seconds):
    """Rounds of slices of the active ones while the idle ones are connected to each variant."""
    idle = []
    try:
        for variant in variants:
            for _ in range(CLIENTS - ACTIVE):
                idle.append(Connection(cluster.ports[variant]))
                idle[-1].query(QUERY)
        options = (seconds, ACTIVE, "-S", "-M", protocol)
        return slices.rounds(
            rounds, variants, lambda variant: slices.one(cluster, variant, *options)
        )
    finally:
        for connection in idle:
            connection.close()
