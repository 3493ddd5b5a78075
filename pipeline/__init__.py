"""The word count: two Spark jobs that know nothing of each other but the data between them.

``split`` reads a database, a folder tree of text files, and writes its words. ``count`` reads the
words and writes how often each occurs. Each file is a chain: it is acked when the counts on disk
hold all of its words. ``stream`` does the same as files arrive; ``repair`` counts lost words.
"""
