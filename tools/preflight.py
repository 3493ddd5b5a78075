"""Prints in one line why a deployment cannot begin, because Node and the CDK print many lines.

    python -m tools.preflight [ARGUMENTS OF `cdk deploy`]

The program asks AWS only for the caller's identity and the version of the bootstrap. If these
cannot be read, the CDK's command line reports the problem.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_QUALIFIER: Final = "@aws-cdk/core:bootstrapQualifier"
_CONFIG: Final = Config(
    connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2}
)
PAGE: Final = "docs/deploy.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--profile")
    parser.add_argument("-c", "--context", action="append", default=[])
    options, _ = parser.parse_known_args(arguments)
    context = json.loads(Path("cdk.json").read_text(encoding="utf-8"))["context"]
    context |= dict(pair.partition("=")[::2] for pair in options.context)
    problem = missing(options.profile, context.get(_QUALIFIER, "hnb659fds"))
    if problem:
        print(f"error: {problem}: {PAGE}", file=sys.stderr)
    return int(problem is not None)


def missing(profile: str | None, qualifier: str) -> str | None:
    if shutil.which("npm") is None:
        return "there is no Node: run `make venv`, or install Node 20 or later"
    try:
        # The CDK reads this variable first. boto3 never reads it.
        region = os.environ.get("AWS_REGION")
        session = boto3.Session(profile_name=profile, region_name=region)
        if session.region_name is None:
            return "there is no AWS region: set AWS_REGION, or one in your profile"
        if session.get_credentials() is None:
            return "there are no AWS credentials: run `aws configure sso`, or set AWS_PROFILE"
        account = session.client("sts", config=_CONFIG).get_caller_identity()["Account"]
        return _not_bootstrapped(session, account, qualifier)
    except ClientError as error:
        return f"AWS rejects your credentials ({error.response['Error']['Code']}): renew them"
    except BotoCoreError as error:
        return " ".join(str(error).split())


def _not_bootstrapped(session: Any, account: str, qualifier: str) -> str | None:
    name = f"/cdk-bootstrap/{qualifier}/version"
    try:
        session.client("ssm", config=_CONFIG).get_parameter(Name=name)
    except ClientError as error:
        # A user who may not read the version may still assume a role that has this permission.
        if error.response["Error"]["Code"] == "ParameterNotFound":
            place = f"account {account}, region {session.region_name}"
            return f"{place} has no {name}: run `make bootstrap` once"
    return None


if __name__ == "__main__":
    sys.exit(main())
