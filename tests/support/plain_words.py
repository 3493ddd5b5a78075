"""The plain definition of the words of a text, which tests compare with."""

from collections import Counter

from pipeline.words import WORD


def words(text: str) -> list[str]:
    """Return all words of a text, in order."""
    return WORD.findall(text.casefold())


def counted(text: str) -> Counter[str]:
    """Return how often each word occurs in a text."""
    return Counter(words(text))
