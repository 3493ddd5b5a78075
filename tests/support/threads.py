"""Concurrent calls."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def in_threads(work, arguments):
    """Call a function with each argument in a thread of its own, all at once; return the results.

    The first error of a thread is raised.
    """
    barrier = Barrier(len(arguments))

    def run(argument):
        barrier.wait()
        return work(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run, arguments))
