"""docs/spark-deploy.md: its commands, its job, its policy and its versions, as they stand there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from xorack import traced, unit_id, xor
from xorack.spark import request_id

ROOT = Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs" / "spark-deploy.md").read_text(encoding="utf-8")
PACKED = ("Makefile", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "xorack",
          "lambda_src")  # fmt: skip
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
    """The text with names in place of what readers put their own for."""
    for name, value in {**NAMES, **names}.items():
        text = re.sub(rf"\b{name}\b", value, text)
    return text


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL)


def block(language, text):
    """The one that holds this text."""
    (found,) = (code for code in blocks(language) if text in code)
    return found


def commands(start):
    """The commands that begin so, each as its words."""
    found = re.findall(rf"^    ({start} (?:.*\n(?:     .*\n)*))", DOC, re.MULTILINE)
    return [shlex.split(filled(text.replace("\\\n", ""), VERSION="1.2.3")) for text in found]


def test_every_block_is_held_here():
    held = ("__version__", "aws_iam.Role", "SparkSession.builder")
    assert {block("python", text) for text in held} == set(blocks("python"))
    held = ("sqs:SendMessage", "kms:Decrypt")
    assert {block("json", text) for text in held} == set(blocks("json"))
    outside = re.sub(r"^```.*?^```$", "", DOC, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    (\S+ \S+)", outside, re.MULTILINE)
    told = [line for line in indented if not line.startswith("--conf")]
    assert set(told) == {"make wheel", "aws s3", "spark-submit --py-files", "aws emr-serverless",
                         "aws glue"}  # fmt: skip


# What the AWS CLI is told.


def asked(service, operation):
    """What a command of the AWS CLI asks for, as the API takes it."""
    import botocore.session
    from botocore import xform_name

    (command,) = (words for words in commands("aws") if words[1:3] == [service, operation])
    model = botocore.session.get_session().get_service_model(service)
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(operations[operation]).input_shape
    options = {"--" + xform_name(name, "-"): name for name in shape.members}
    given = {}
    for option, value in zip(command[3::2], command[4::2], strict=True):
        name = options[option]
        plain = shape.members[name].type_name == "string"
        given[name] = value if plain else json.loads(value)
    for name, member in shape.members.items():
        if member.metadata.get("idempotencyToken"):
            given.setdefault(name, "the CLI makes one")
    return shape, given


def wrong_patterns(shape, value, where=""):
    """Strings that are not of the pattern or the length that the service's model has for them."""
    match shape.type_name:
        case "structure":
            for name, held in value.items():
                yield from wrong_patterns(shape.members[name], held, f"{where}.{name}")
        case "list":
            for held in value:
                yield from wrong_patterns(shape.member, held, f"{where}[]")
        case "map":
            for key, held in value.items():
                yield from wrong_patterns(shape.value, held, f"{where}.{key}")
        case "string":
            try:
                fits = re.search(shape.metadata.get("pattern", ""), value)
            except re.error:  # of another dialect
                fits = True
            if not fits or not 0 <= len(value) <= shape.metadata.get("max", len(value)):
                yield f"{where}: {value}"


@pytest.mark.parametrize(
    ("service", "operation"),
    [("emr-serverless", "start-job-run"), ("glue", "create-job"), ("glue", "start-job-run")],
)
def test_the_services_take_what_the_cli_is_told(service, operation):
    from botocore.validate import ParamValidator

    shape, given = asked(service, operation)
    assert ParamValidator().validate(given, shape).generate_report() == ""
    assert list(wrong_patterns(shape, given)) == []


def test_what_is_wrong_would_be_noticed():
    from botocore.validate import ParamValidator

    shape, given = asked("emr-serverless", "start-job-run")
    given["jobDriver"]["sparkSubmit"]["arguments"] = []
    assert "Unknown parameter" in ParamValidator().validate(given, shape).generate_report()
    shape, given = asked("glue", "create-job")
    given["GlueVersion"] = "five"
    assert list(wrong_patterns(shape, given)) == [".GlueVersion: five"]


def test_what_jobs_are_told_to_take_was_uploaded():
    copies = [words[3:] for words in commands("aws s3")]
    uploaded = {place + name.rpartition("/")[2] for name, place in copies}
    _, emr = asked("emr-serverless", "start-job-run")
    _, glue = asked("glue", "create-job")
    submit = emr["jobDriver"]["sparkSubmit"]
    assert {
        submit["entryPoint"],
        shlex.split(submit["sparkSubmitParameters"])[1],
        glue["Command"]["ScriptLocation"],
        glue["DefaultArguments"]["--additional-python-modules"],
    } == uploaded


# What the job's role may do.


@pytest.mark.parametrize("own_key", [False, True])
def test_the_policy_is_what_grant_send_gives(own_key):
    from aws_cdk import App, Stack, assertions, aws_iam, aws_kms, aws_s3

    from xorack.cdk import Acker

    stack = Stack(App(), "Mine")
    key = aws_kms.Key(stack, "Key") if own_key else None
    names = {
        "self": stack,
        "aws_iam": aws_iam,
        "acker": Acker(stack, "Acker", encryption_key=key),
        "data": aws_s3.Bucket(stack, "Data"),
    }
    exec(compile(block("python", "aws_iam.Role"), "spark-deploy.md", "exec"), names)
    resources = assertions.Template.from_stack(stack).to_json()["Resources"]
    role = stack.get_logical_id(names["role"].node.default_child)
    queue = stack.get_logical_id(names["acker"].queue.node.default_child)
    arns = {queue: "arn:aws:sqs:REGION:ACCOUNT:QUEUE"}
    if key is not None:
        arns[stack.get_logical_id(key.node.default_child)] = "arn:aws:kms:REGION:ACCOUNT:key/KEY"
    given = [
        {**statement, "Resource": arns[statement["Resource"]["Fn::GetAtt"][0]]}
        for policy in resources.values()
        if policy["Type"] == "AWS::IAM::Policy" and {"Ref": role} in policy["Properties"]["Roles"]
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if not str(statement["Action"]).startswith("['s3:")
    ]
    told = [json.loads(block("json", "sqs:SendMessage"))]
    told += [json.loads(block("json", "kms:Decrypt"))] if own_key else []
    assert sorted(given, key=str) == sorted(told, key=str)


# Versions.


def test_what_the_versions_are_good_for():
    rows = re.findall(
        r"^\| ((?:Glue|EMR) .*?) \| ([\d.]+) \| (.*?) \| (.*?) \|$", DOC, re.MULTILINE
    )
    assert len(rows) == 5
    for platform, spark, pythons, use in rows:
        version = tuple(map(int, spark.split(".")))
        assert version >= (3, 5), platform
        assert "`send`" in use
        assert ('format("xorack")' in use) == (version >= (4, 0)), platform
        newest = max(tuple(map(int, found.split("."))) for found in re.findall(r"3\.\d+", pythons))
        assert newest >= (3, 10), platform
    tried = re.search(r"`make test-spark35`", DOC)
    assert tried
    assert re.findall(r"PySpark\s(\d\.\d+\.\d+)", DOC) == re.findall(
        r"pyspark==(3\.5\.\d+)", (ROOT / "tools" / "spark35.py").read_text()
    )
    for version in re.findall(r"^pyspark==([\d.]+)", (ROOT / "requirements.txt").read_text(), re.M):
        assert f"{version}" in DOC


# The job, with a real spark-submit.


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """What `make wheel` builds, where an older one was built before."""
    source = tmp_path_factory.mktemp("source")
    for name in PACKED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    left = source / "build" / "lib" / "xorack" / "gone.py"
    left.parent.mkdir(parents=True)
    left.touch()
    make = ["make", "--no-print-directory", "--old-file=venv", "wheel", f"PY={sys.executable}"]
    kept = {name: held for name, held in os.environ.items() if not name.startswith("M")}
    made = subprocess.run(make, cwd=source, env=kept, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return source / made.stdout.split()[-1]


def test_the_wheel_is_of_what_is_there_now(wheel):
    assert re.fullmatch(r"xorack-[\d.]+-py3-none-any\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert "xorack/spark/sink.py" in names
    assert "xorack/gone.py" not in names


def python_with(folder, *packages):
    """A Python that has these packages, as a platform may have them, and nothing else."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    import boto3

    here = Path(boto3.__file__).parents[1]
    for package in packages:
        for found in (here / package, here / f"{package}.py", here / f"{package}.libs"):
            if found.exists():
                (site / found.name).symlink_to(found)
    return folder / "bin" / "python"


BOTO3 = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")
ARROW = ("pyarrow",)
PANDAS = ("pandas", "numpy", "pytz", "tzdata")


def submit(python, folder, *arguments):
    """Run spark-submit on a cluster whose executor is a process of its own."""
    import pyspark

    from xorack.local.java import java_home

    home = Path(pyspark.__file__).parent
    kept = {name: held for name, held in os.environ.items() if not name.startswith("PY")}
    # Not where the checkout is, and the checkout on no path.
    done = subprocess.run(
        [home / "bin" / "spark-submit", "--master", "local-cluster[1,1,1024]",
         "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m",
         "--conf", "spark.sql.shuffle.partitions=1", *arguments],
        cwd=folder,
        env={
            **kept,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    return done.stdout


def words_of(number, count):
    """Rows as `pipeline.split` has them."""
    return [{"at": (number << 40) + pos, "word": f"w{pos % 3}"} for pos in range(count)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_job_with_the_wheel_and_boto3_alone(wheel, queue, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    counts = {"file a": 5, "file b": 7}
    rows = {tag: words_of(at, count) for at, (tag, count) in enumerate(counts.items())}
    for name in ("words", "files"):
        (tmp_path / "words" / name).mkdir(parents=True)
    table = pa.Table.from_pylist([row for held in rows.values() for row in held])
    parquet.write_table(table, tmp_path / "words" / "words" / "0.parquet")
    listed = [json.dumps({"number": at, "tag": tag}) for at, tag in enumerate(rows)]
    (tmp_path / "words" / "files" / "0.json").write_text("\n".join(listed))
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    shutil.copy(wheel, jobs)
    script = block("python", "SparkSession.builder")
    script = script.replace("https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE", queue.queue_url)
    (jobs / "count.py").write_text(script.replace("s3://BUCKET", str(tmp_path)))
    # What EMR Serverless is told, with this folder for the bucket.
    _, told = asked("emr-serverless", "start-job-run")
    told = told["jobDriver"]["sparkSubmit"]
    version = wheel.name.split("-")[1]
    parameters = told["sparkSubmitParameters"].replace("1.2.3", version)
    parameters = shlex.split(parameters.replace("s3://my-bucket", str(tmp_path)))
    entry = told["entryPoint"].replace("s3://my-bucket", str(tmp_path))
    python = python_with(tmp_path / "python", *BOTO3)
    said = submit(python, tmp_path, *parameters, entry, *told["entryPointArguments"])
    assert "Sent(messages=1, requests=2, chains=2" in said
    assert {(r.tag, r.id, r.stamp, r.finished) for r in queue.take()} == {
        (
            tag,
            request_id("2026-11-21", "count", 0, "stamp", tag),
            xor(*(traced(unit_id(row["at"])) for row in held)),
            len(held),
        )
        for tag, held in rows.items()
    }
    # The one for a cluster of one's own says the same.
    ((*own, script, run, name),) = (words[1:] for words in commands("spark-submit"))
    assert own == ["--py-files", "xorack-1.2.3-py3-none-any.whl"]
    assert [script, run, name] == ["count.py", *told["entryPointArguments"]]


WORKERS = """
import sys
from pyspark.sql import SparkSession
import xorack
from xorack.spark import fold, register, send, unit

queue_url, own = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
assert ".whl/" in xorack.__file__ or ".zip/" in xorack.__file__, xorack.__file__
words = spark.range(0, 30).selectExpr("cast(id % 3 as string) AS tag", "id AS pos")
rows = fold(words, "tag", unit("tag", "pos"), count="finished")
if own == "own":
    def where(batches):
        import pyarrow, xorack
        for batch in batches:
            yield pyarrow.RecordBatch.from_pylist([{"at": xorack.__file__}])
    print("worker", rows.mapInArrow(where, "at string").first()["at"])
print(send(rows, queue_url=queue_url, run_id="r", step="tasks", send_from="tasks"))
register(spark)
(rows.write.format("xorack").mode("append").option("queueUrl", queue_url)
    .option("runId", "r").option("step", "format").save())
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("named", ["wheel", "zip"])
def test_the_workers_have_it_too(wheel, queue, tmp_path, named):
    """Spark itself gives them no wheel; a zip, for functions of one's own as well."""
    archive = Path(
        shutil.copy(wheel, tmp_path / (wheel.name if named == "wheel" else "xorack.zip"))
    )
    (tmp_path / "job.py").write_text(WORKERS)
    python = python_with(tmp_path / "python", *BOTO3, *ARROW, *PANDAS)
    own = "own" if named == "zip" else "none"
    said = submit(python, tmp_path, "--py-files", archive.name, "job.py", queue.queue_url, own)
    assert ("worker" in said) == (named == "zip")
    sent = {(r.tag, r.id, r.finished) for r in queue.take()}
    assert sent == {
        (tag, request_id("r", step, 0, "stamp", tag), 10)
        for tag in "012"
        for step in ("tasks", "format")
    }
