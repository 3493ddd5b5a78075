"""``make demo``: the whole way from files to acked events, on one machine.

The embedded AWS takes the synthesised stack, the two Spark jobs of ``pipeline/`` run over a real
database, and a queue subscribes to the events, as any downstream system would. Needs a checkout:
the stack and the jobs are not part of the installed package.

* `database`: the files, the sources of Python's standard library where the user names none.
* `assembly`: the synthesised stack, kept until its sources change.
* `children`: child processes that end with the demo, however it ends.
* `watching`: what becomes of the chains, from the table and from the subscriber's queue.
* `losing`: ends the chains of words that were lost on purpose, has them repaired.
* `run`: the order of it all.
"""
