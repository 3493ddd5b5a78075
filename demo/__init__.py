"""``make demo``: the whole way from files to acked events, on one machine.

The embedded AWS takes the synthesised stack, the Spark jobs of ``pipeline/`` run over a database of
text files, and a queue subscribes to the events as any other system would.

* `database`: the files, by default the sources of Python's standard library.
* `assembly`: the synthesised stack, kept until its sources change.
* `children`: child processes that end with the demo.
* `progress`: numbers of chains, from the table and from the subscriber's queue.
* `lost_words`: the chains of lost words: their end and their repair.
* `run`: the steps in order.
* `display`: the output.
"""
