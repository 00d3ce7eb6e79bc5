"""What the programs in Python share: phases in their order, and expectations."""

import concurrent.futures
import contextlib
import os

OTHER_AUTHORITY = os.environ["OTHER_SSLROOTCERT"]
PHASES = ("login", "migration", "crud", "prepared", "batch", "copy", "retry", "cancel", "pool", "together")
# Workers that change one row, and how often each does.
WORKERS, ROUNDS = 8, 10
POOL_SIZE = 4


def equal(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


@contextlib.contextmanager
def refused(kind, *words):
    """What is inside must fail, by an exception of this kind that has one of these words."""
    try:
        yield
    except kind as error:
        assert not words or any(word in str(error) for word in words), f"refused otherwise: {error}"
    else:
        raise AssertionError(f"not refused: {kind.__name__} {words} was expected")


def in_threads(work, number):
    """Results of work(0), work(1), … at the same time."""
    with concurrent.futures.ThreadPoolExecutor(number) as threads:
        return list(threads.map(work, range(number)))


def run(functions):
    """Runs the phases among a program's functions; a phase may return what it found worth telling."""
    for name in PHASES:
        told = functions[name]()
        print(f"{name}: {told or 'as expected'}", flush=True)


async def run_async(functions):
    """The same for coroutines."""
    for name in PHASES:
        told = await functions[name]()
        print(f"{name}: {told or 'as expected'}", flush=True)
