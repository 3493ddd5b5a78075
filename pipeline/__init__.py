"""The word count: two Spark jobs that know nothing of each other but the data between them.

``split`` reads a database (a folder tree of text files) and writes its words; ``count`` reads
these words and writes how often each comes. Each file is a chain: it is acked when all its words
are counted. See `pipeline.layout` for the data between them.
"""
