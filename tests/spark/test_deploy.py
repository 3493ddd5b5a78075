"""docs/spark-deploy.md: its commands, its job, its policy and its versions work as written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import venv
from pathlib import Path

import pytest

from tests.spark.helpers import ROOT, Acker, block_with, code_blocks, run_process, totals

DOC = (ROOT / "docs" / "spark-deploy.md").read_text(encoding="utf-8")
NAMES = {
    "ACCOUNT": "123456789012",
    "APPLICATION": "00f1example",
    "BUCKET": "my-bucket",
    "KEY": "1234abcd-12ab-34cd-56ef-1234567890ab",
    "QUEUE": "stamps",
    "REGION": "eu-west-1",
    "ROLE": "arn:aws:iam::123456789012:role/job",
}


def filled(text, **names):
    """Replace the placeholders of a text."""
    for name, value in {**NAMES, **names}.items():
        text = re.sub(rf"\b{name}\b", value, text)
    return text


def block(language, text):
    return block_with(code_blocks(DOC, language), text)


def commands(start):
    """Return the commands that begin with a text, each as a list of words."""
    found = re.findall(rf"^    ({start} (?:.*\n(?:     .*\n)*))", DOC, re.MULTILINE)
    return [shlex.split(filled(text.replace("\\\n", ""), VERSION="1.2.3")) for text in found]


# -- commands of the AWS CLI -----------------------------------------------------------------------


def api_request(service, operation):
    """Return the input shape of an operation, and the request that the CLI command makes of it."""
    import botocore.session
    from botocore import xform_name

    (command,) = (words for words in commands("aws") if words[1:3] == [service, operation])
    model = botocore.session.get_session().get_service_model(service)
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(operations[operation]).input_shape
    options = {"--" + xform_name(name, "-"): name for name in shape.members}
    request = {
        name: "the CLI makes one"
        for name, member in shape.members.items()
        if member.metadata.get("idempotencyToken")
    }
    for option, value in zip(command[3::2], command[4::2], strict=True):
        is_string = shape.members[options[option]].type_name == "string"
        request[options[option]] = value if is_string else json.loads(value)
    return shape, request


# -- the job, with spark-submit --------------------------------------------------------------------


def python_with(folder, *packages):
    """Make a Python that has only these packages, like a platform's."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    import boto3

    here = Path(boto3.__file__).parents[1]
    for package in packages:
        for found in (here / package, here / f"{package}.py", here / f"{package}.libs"):
            if found.exists():
                (site / found.name).symlink_to(found)
    return folder / "bin" / "python"


NEEDED = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")
NEEDED += ("numpy", "pandas", "pyarrow", "pytz", "tzdata")


def submit(python, folder, *arguments):
    """Run spark-submit on a cluster with an executor process, outside the checkout."""
    import pyspark

    from xorack.local.java import java_home

    home = Path(pyspark.__file__).parent
    kept = {name: held for name, held in os.environ.items() if not name.startswith("PY")}
    return run_process(
        [
            home / "bin" / "spark-submit",
            "--master",
            "local-cluster[1,1,1024]",
            "--conf",
            "spark.ui.enabled=false",
            "--conf",
            "spark.executor.memory=512m",
            "--conf",
            "spark.sql.shuffle.partitions=1",
            *arguments,
        ],
        cwd=folder,
        env={
            **kept,
            "JAVA_HOME": str(java_home()),
            # A short job ends sooner when Java compiles less.
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        },
    ).stdout


START = """
orders = [(order, line, f"sku {line}", 1) for order in (17, 18) for line in range(5)]
schema = "order long, line int, sku string, amount long"
spark.createDataFrame(orders, schema).write.parquet("s3://BUCKET/lines")
lines.start("s3://BUCKET/lines")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_job_runs_with_the_package_in_a_zip(queue, tmp_path):
    """A wheel is such a zip: tests/infrastructure/test_wheel.py."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    shutil.make_archive(jobs / "xorack", "zip", ROOT, "xorack")
    script = block("python", "builder.getOrCreate").replace("rows = ", f"{START}rows = ")
    script = script.replace("https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE", queue.queue_url)
    (jobs / "bill.py").write_text(script.replace("s3://BUCKET", str(tmp_path)))
    # The job run of EMR Serverless, with this folder instead of the bucket.
    request = api_request("emr-serverless", "start-job-run")[1]["jobDriver"]["sparkSubmit"]
    parameters, entry = (
        request[name].replace("s3://my-bucket", str(tmp_path))
        for name in ("sparkSubmitParameters", "entryPoint")
    )
    python = python_with(tmp_path / "python", *NEEDED)
    arguments = (*shlex.split(parameters), entry, *request["entryPointArguments"])
    out = submit(python, tmp_path, *arguments)
    assert "<Report: written: 10 units, 2 chains; " in out
    tags = [f"2026-11-21/order/{order}" for order in (17, 18)]
    assert totals(Acker(queue.bodies).chains) == dict.fromkeys(tags, ("acked", 5, 5))
    # The command for other clusters has the same arguments.
    ((*own, script, run, name),) = (words[1:] for words in commands("spark-submit"))
    assert own == ["--py-files", "xorack.zip"]
    assert [script, run, name] == ["bill.py", *request["entryPointArguments"]]


@pytest.mark.slow
def test_a_connect_session_gets_the_package(connect, tmp_path, monkeypatch):
    shutil.make_archive(tmp_path / "xorack", "zip", ROOT, "xorack")
    monkeypatch.chdir(tmp_path)
    remote = 'SparkSession.builder.remote("sc://HOST:15002").getOrCreate()'
    exec(block("python", "builder.remote").replace(remote, "session"), {"session": connect})

    def path(batches):
        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"folder": sys.path})

    folders = connect.range(1).mapInArrow(path, "folder string").collect()
    assert any(row["folder"].endswith("/xorack.zip") for row in folders)
