"""The word count: two independent Spark jobs, which share only the data between them.

``split`` reads a folder tree of text files and writes their words. ``count`` writes how often each
word occurs. Each file is a chain, which is acked when the counts on disk have all of its words.
"""
