"""Keeps everything local away from the user's AWS configuration, and from AWS itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

ACCOUNT = "123456789012"
REGION = "us-east-1"


def isolated(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of an environment in which no SDK finds the user's AWS account.

    Every `AWS_*` variable goes (profiles, tokens, role ARNs, endpoints: a forgotten one would point
    a client elsewhere), the configuration files are switched off, and so is the metadata service
    of EC2. The credentials that come in their place are refused by the real AWS.

    Args:
        environ: The environment to start from; it is not changed.

    Returns:
        The environment for a child process, or to be put in place by `isolation`.
    """
    clean = {name: value for name, value in environ.items() if not name.startswith("AWS_")}
    direct = ",".join(
        filter(None, [environ.get("no_proxy") or environ.get("NO_PROXY"), "127.0.0.1,localhost"])
    )
    return {
        **clean,
        # What is on this machine is not reached through a company's proxy.
        "NO_PROXY": direct,
        "no_proxy": direct,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def isolation(**more: str) -> Iterator[None]:
    """Isolates this process while it lasts, and puts its environment back after.

    Args:
        **more: Variables to set besides, for example `AWS_ENDPOINT_URL`.

    Yields:
        Nothing.
    """
    before = dict(os.environ)
    _put({**isolated(before), **more})
    try:
        yield
    finally:
        _put(before)


def _put(environ: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(environ):
        del os.environ[name]
    os.environ.update(environ)
