"""``make demo``: the complete way from files to acked events, on one machine.

The embedded AWS takes the synthesised stack. The Spark jobs of ``pipeline/`` run over a database of
text files, and a monitor follows the chains and their events.
"""
