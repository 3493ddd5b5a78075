"""Makes an environment in which a process sees neither the user's AWS configuration nor AWS."""

from __future__ import annotations

import os
from collections.abc import Mapping

ACCOUNT = "123456789012"
REGION = "us-east-1"


def isolated(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment, and hide the user's AWS account from every SDK.

    All `AWS_*` variables are removed, because a profile, token or endpoint would lead a client
    elsewhere. The configuration files and EC2's metadata service are disabled. The real AWS rejects
    the credentials that are set.
    """
    # A program reads only one of the two variables, so each variable gets the hosts of both.
    listed = ",".join(environ.get(name, "") for name in ("no_proxy", "NO_PROXY"))
    hosts = [*filter(None, map(str.strip, listed.split(","))), "127.0.0.1", "localhost"]
    no_proxy = ",".join(dict.fromkeys(hosts))
    return {
        **{name: value for name, value in environ.items() if not name.startswith("AWS_")},
        # A company's proxy does not reach the addresses of this machine.
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
