"""Proves that the stack can be deployed and works: template, deployment, doctor, deletion.

    python -m tools.deployed --stack xorack-proof [ARGUMENTS OF `xorack doctor`]

The program uses the credentials, the region and the endpoint that boto3 finds. At the end it
deletes the stack and the bucket with its code, even after a failure. The exit status is the exit
status of the doctor. The stack has no topic for its alarms, so the check `recipients` may fail.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.exceptions import ClientError

from infra.template import write

SETTINGS: Final = {"removal_policy": "destroy", "deletion_protection": "false"}


def deploy(stack: str, bucket: str, folder: Path) -> None:
    """Create the stack from the template for CloudFormation, and wait until it is complete."""
    template, code = write(folder, SETTINGS)
    s3 = boto3.client("s3")
    place = {"CreateBucketConfiguration": {"LocationConstraint": s3.meta.region_name}}
    s3.create_bucket(Bucket=bucket, **(place if s3.meta.region_name != "us-east-1" else {}))
    s3.put_object(Bucket=bucket, Key=code.name, Body=code.read_bytes())
    client = boto3.client("cloudformation")
    client.create_stack(
        StackName=stack,
        TemplateBody=template.read_text(encoding="utf-8"),
        Parameters=[{"ParameterKey": "CodeBucket", "ParameterValue": bucket}],
        Capabilities=["CAPABILITY_IAM"],
        OnFailure="DELETE",
    )
    client.get_waiter("stack_create_complete").wait(StackName=stack)


def delete(stack: str, bucket: str) -> None:
    """Delete the stack with all its contents, and the bucket."""
    client, s3 = boto3.client("cloudformation"), boto3.client("s3")
    client.delete_stack(StackName=stack)
    client.get_waiter("stack_delete_complete").wait(StackName=stack)
    try:
        for stored in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=stored["Key"])
        s3.delete_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--stack", required=True, help="its name, which no stack may have yet")
    options, doctor_arguments = parser.parse_known_args(arguments)
    account: dict[str, Any] = boto3.client("sts").get_caller_identity()
    bucket = f"{options.stack}-code-{account['Account']}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            deploy(options.stack, bucket, Path(folder))
        doctor = [sys.executable, "-m", "xorack.cli", "doctor", "--stack", options.stack]
        command = [*doctor, "--except", "recipients", "--yes", *doctor_arguments]
        return subprocess.run(command, check=False).returncode
    finally:
        delete(options.stack, bucket)


if __name__ == "__main__":
    sys.exit(main())
