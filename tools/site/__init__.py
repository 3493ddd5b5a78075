"""Builds the site of the docs with mkdocs, in an environment of its own: `make docs`.

The theme, mkdocs-material, gets fixes until May 2027. Its successor, Zensical, reads the same
settings and pages, which `pages.py` writes.
"""
