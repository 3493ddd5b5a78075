"""Files fan out to workers. When all lines of a file are handled, a report on it is written.

``pip install 'xorack[cdk,fan-in]'``, then ``cdk deploy``.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from xorack.cdk import Acker  # isort: skip - before aws_cdk, because it finds Node

from aws_cdk import (
    App,
    CfnOutput,
    Duration,
    Stack,
    aws_events,
    aws_events_targets,
    aws_lambda,
    aws_lambda_event_sources,
    aws_s3,
    aws_sqs,
)
from constructs import Construct

FUNCTIONS = Path(__file__).with_name("functions")
PACKAGES = ("xorack", "aws_lambda_powertools", "typing_extensions")
"""These are pure Python, so the code suits all architectures. Lambda's runtime has boto3."""


class FanIn(Stack):
    """A bucket, workers on a queue, and an acker that knows when they have finished a file."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.acker = Acker(self, "Acker")
        self.bucket = aws_s3.Bucket(self, "Files", enforce_ssl=True)
        notification = {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}
        resource = self.bucket.node.default_child
        resource.add_property_override("NotificationConfiguration", notification)
        # A line that fails five times is dead-lettered, and the file's event names it.
        self.dead = aws_sqs.Queue(
            self, "Dead", enforce_ssl=True, retention_period=Duration.days(14)
        )
        retry_seconds = int(self.node.get_context("retry_seconds"))
        self.queue = aws_sqs.Queue(
            self,
            "Work",
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(retry_seconds),
            dead_letter_queue=aws_sqs.DeadLetterQueue(queue=self.dead, max_receive_count=5),
        )
        split, work, report = self._functions()
        self._subscribe(split, work, report)
        for producer in (split, work):
            self.acker.grant_send(producer)
        self.queue.grant_send_messages(split)
        self.bucket.grant_read(split)
        self.bucket.grant_read_write(report)
        self._outputs()

    def _functions(self) -> list[aws_lambda.Function]:
        """Create the functions that split a file, handle a line, and report on a file."""
        code = aws_lambda.Code.from_asset(code_folder())
        environment = {
            "XORACK_QUEUE_URL": self.acker.queue.queue_url,
            "WORK_QUEUE_URL": self.queue.queue_url,
            "BUCKET": self.bucket.bucket_name,
            "TIMEOUT": str(self.node.get_context("timeout_seconds")),
            "FAILURE_RATE": str(self.node.get_context("failure_rate")),
        }
        return [
            aws_lambda.Function(
                self,
                f"{name.capitalize()}Function",
                runtime=aws_lambda.Runtime.PYTHON_3_13,
                handler=f"handlers.{name}",
                code=code,
                environment=environment,
                memory_size=256,
                timeout=Duration.seconds(seconds),
            )
            for name, seconds in (("split", 300), ("work", 10), ("report", 30))
        ]

    def _subscribe(
        self, split: aws_lambda.Function, work: aws_lambda.Function, report: aws_lambda.Function
    ) -> None:
        """Invoke the functions for a new file, for lines in the queue, and for a chain's end."""
        files = aws_events.EventPattern(
            source=["aws.s3"],
            detail_type=["Object Created"],
            detail={
                "bucket": {"name": [self.bucket.bucket_name]},
                "object": {"key": aws_events.Match.anything_but_prefix("reports/")},
            },
        )
        target = aws_events_targets.LambdaFunction(split)
        aws_events.Rule(self, "NewFile", event_pattern=files, targets=[target])
        source = aws_lambda_event_sources.SqsEventSource(
            self.queue,
            batch_size=100,
            max_batching_window=Duration.seconds(1),
            report_batch_item_failures=True,
        )
        work.add_event_source(source)
        self.acker.events.rule("Report", targets=[aws_events_targets.LambdaFunction(report)])

    def _outputs(self) -> None:
        outputs = {
            "BucketName": self.bucket.bucket_name,
            "WorkQueueUrl": self.queue.queue_url,
            "DeadUrl": self.dead.queue_url,
            "TableName": self.acker.table.table_name,
            "QueueUrl": self.acker.queue.queue_url,
            "DeadLetterQueueUrl": self.acker.dead_letters.queue_url,
            "SweeperName": self.acker.sweeper.function_name,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


def code_folder() -> str:
    """Copy the functions with the installed packages that they import."""
    folder = Path(tempfile.mkdtemp(prefix="fan-in-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__", "cdk", "cli", "local", "ops", "spark")
    shutil.copytree(FUNCTIONS, folder, dirs_exist_ok=True, ignore=ignore)
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("the functions need it: run pip install 'xorack[fan-in]'")
        source = Path(spec.origin)
        if source.name == "__init__.py":
            shutil.copytree(source.parent, folder / package, ignore=ignore)
        else:
            shutil.copy(source, folder)
    return str(folder)


if __name__ == "__main__":
    app = App()
    FanIn(app, "fan-in")
    app.synth()
