"""The word count: two Spark jobs that know nothing of each other but the data between them.

``split`` reads a folder tree of text files and writes their words, ``count`` how often each occurs.
Each file is a chain, which is acked when the counts on disk hold all of its words.
"""
