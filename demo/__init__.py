"""``make demo``: the complete way from files to acked events, on one machine.

The stack is synthesised and deployed into the embedded AWS. The Spark jobs of ``pipeline/`` process
a database of text files, and a monitor follows the chains and their events.
"""
