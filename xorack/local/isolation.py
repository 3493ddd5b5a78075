"""An environment that hides the user's AWS configuration, and AWS itself, from a process."""

from __future__ import annotations

import os
from collections.abc import Mapping

ACCOUNT = "123456789012"
REGION = "us-east-1"


def isolated(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment and hide the user's AWS account from every SDK.

    Removes every `AWS_*` variable: a forgotten profile, token or endpoint would lead a client
    elsewhere. Disables the configuration files and the metadata service of EC2, and sets
    credentials that the real AWS rejects.
    """
    # Programs read one of the two: each gets what both name, once.
    listed = ",".join(environ.get(name, "") for name in ("no_proxy", "NO_PROXY"))
    hosts = [*filter(None, map(str.strip, listed.split(","))), "127.0.0.1", "localhost"]
    no_proxy = ",".join(dict.fromkeys(hosts))
    return {
        **{name: value for name, value in environ.items() if not name.startswith("AWS_")},
        # A company's proxy does not reach this machine's own addresses.
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
