"""The examples in the embedded AWS: orders, and fan-in of files in a bucket."""

import json

import pytest

from tests.e2e.conftest import ROOT, python
from tests.support.events import eventually
from tests.support.subscriber import drain
from xorack.aws.sqs import send
from xorack.core.request import Request
from xorack.local.deploy import deploy

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "examples" / "fan_in"
LINES = 1000
BROKEN = 617


@pytest.fixture(scope="module")
def stack(embedded_aws, tmp_path_factory):
    """Deploy the example: failed messages are redelivered at once, and no chain times out."""
    out = tmp_path_factory.mktemp("cdk")
    context = json.loads((EXAMPLE / "cdk.json").read_text())["context"]
    context |= {"timeout_seconds": 3600, "retry_seconds": 2}
    environment = {"CDK_OUTDIR": str(out), "CDK_CONTEXT_JSON": json.dumps(context)}
    done = python(str(EXAMPLE / "app.py"), PYTHONPATH=str(ROOT), **environment)
    assert done.returncode == 0, done.stderr
    return deploy(embedded_aws, out / "fan-in.template.json", name="fan-in")


class Bucket:
    """The files and the reports on them."""

    def __init__(self, stack):
        self.s3, self.name = stack.client("s3"), stack.outputs["BucketName"]

    def put(self, key, lines):
        self.s3.put_object(Bucket=self.name, Key=key, Body="\n".join(lines).encode())

    def report(self, key):
        try:
            report = self.s3.get_object(Bucket=self.name, Key=f"reports/{key}")
        except self.s3.exceptions.NoSuchKey:
            return None
        return json.loads(report["Body"].read())


def tag_of(stack, bucket, key):
    """Return the tag of a file's chain."""
    items = stack.client("dynamodb").scan(TableName=stack.table_name)["Items"]
    tags = {item["tag"]["S"] for item in items if "status" in item}  # others hold marks
    (tag,) = (tag for tag in tags if tag.startswith(f"{bucket.name}/{key}/"))
    return tag


def test_a_thousand_lines_are_handled_and_the_one_that_was_lost_is_named(stack):
    bucket, sqs = Bucket(stack), stack.client("sqs")
    lines = [f"order {n}" for n in range(1, LINES + 1)]
    bucket.put("good.txt", lines)
    bucket.put("bad.txt", [*lines[: BROKEN - 1], "broken", *lines[BROKEN:]])
    good = eventually(lambda: bucket.report("good.txt"))
    assert good == {"status": "acked", "units": LINES + 1, "lost": {}}

    def dead():
        queue = stack.outputs["DeadUrl"]
        names = ["ApproximateNumberOfMessages"]
        answer = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)
        return answer["Attributes"]["ApproximateNumberOfMessages"] == "1"

    assert eventually(dead)
    assert bucket.report("bad.txt") is None
    tag = tag_of(stack, bucket, "bad.txt")
    send(stack.queue_url, [Request.extend(tag, "now", 0.001)], sqs)

    def swept():
        stack.client("lambda").invoke(FunctionName=stack.outputs["SweeperName"])
        return bucket.report("bad.txt")

    bad = eventually(swept)
    assert bad == {"status": "failed", "units": LINES, "lost": {f"line {BROKEN}": "broken"}}
    assert list(drain(stack.dead_letter_queue_url, sqs)) == []
