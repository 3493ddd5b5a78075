"""Files that tests write."""

from __future__ import annotations


def write_files(root, contents):
    """Write files of text or bytes below a folder; return the folder."""
    for name, content in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root
