"""What the scripts here share: each does the same requests, in phases that the test begins by a line.

A phase prints what its requests found, which must be as on a plain server. The server is that of
PGHOST, PGPORT, PGUSER and PGDATABASE; its table `notes` has rows 1 to 100.
"""

import os
import sys

URL = "{user}@{host}:{port}/{database}".format(
    user=os.environ["PGUSER"], host=os.environ["PGHOST"],
    port=os.environ["PGPORT"], database=os.environ["PGDATABASE"],
)
# Rows that a request reads; and what one that writes does: reads two, changes one, reads another.
READS = [(n, n + 30, n + 60) for n in range(1, 31)]
WRITES = [(n, n + 10, n + 20) for n in range(1, 11)]


def run(read, write, **others):
    """Runs a phase for each line that comes; `read` and `write` do one request."""
    named = {
        "read": lambda: [read(*request) for request in READS],
        "write": lambda: [write(*request) for request in WRITES],
        **others,
    }
    print("ready", flush=True)
    for line in sys.stdin:
        for found in named[line.strip()]():
            print(found)
        print("done", flush=True)
