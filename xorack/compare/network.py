"""What DuckDB needs to read from S3 and by HTTP."""

from __future__ import annotations

import os
from typing import Any

from xorack.compare.texts import literal

__all__ = ["open_network"]


def open_network(con: Any, name: str) -> None:
    """Load DuckDB's extension for S3 and HTTP, with the credentials that boto3 finds."""
    try:
        from duckdb_extensions import import_extension

        import_extension("httpfs")
    except ImportError:
        con.execute("INSTALL httpfs")
    con.execute("LOAD httpfs")
    if not name.startswith("s3://"):
        return
    import boto3

    session = boto3.Session(region_name=os.environ.get("AWS_REGION") or None)
    secret = {"TYPE": "s3", "REGION": session.region_name}
    if found := session.get_credentials():
        keys = found.get_frozen_credentials()
        secret |= {"KEY_ID": keys.access_key, "SECRET": keys.secret_key}
        secret |= {"SESSION_TOKEN": keys.token}
    if address := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        scheme, _, host = address.rstrip("/").partition("://")
        secret |= {"ENDPOINT": host, "URL_STYLE": "path", "USE_SSL": str(scheme == "https")}
    given = ", ".join(f"{key} {literal(value)}" for key, value in secret.items() if value)
    con.execute(f"CREATE OR REPLACE SECRET xorack ({given})")
