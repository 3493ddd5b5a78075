"""The runbooks of docs/state.md in the embedded AWS."""

import json

import pytest

import xorack.cli
from infra.synth import synth
from tests.e2e.conftest import ROOT, events_of
from tests.support.events import eventually
from tests.support.functions import chain
from tests.support.runbook import Shell, commands
from tests.support.subscriber import subscribe
from xorack.aws.sqs import send
from xorack.core.message import pack
from xorack.local.deploy import _upload_assets, deploy
from xorack.local.embedded import EmbeddedAWS

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "state.md").read_text(encoding="utf-8")
SECONDS = {"WaiterConfig": {"Delay": 1, "MaxAttempts": 60}}


class Operator(Shell):
    """An operator who follows a runbook in an AWS of their own."""

    def __init__(self, aws, folder):
        super().__init__(aws.client)
        self.embedded, self.folder, self.stack, self.settings = aws, folder, None, {}

    def follow(self, heading, until=None, *, after=None):
        """Run the commands of a section: those after one that has a text, until one has."""
        started = after is None
        for line in commands(PAGE, heading):
            if started:
                if until and until in line:
                    return
                self.run(line)
            started = started or after in line

    def make(self, words):
        """Run `make deploy ARGS=…`: create the stack, or update it."""
        target, arguments = words
        assert target == "deploy"
        pairs = arguments.removeprefix("ARGS=").removeprefix("-c ").split(" -c ")
        # The runbook says: with the same settings as before.
        settings = {**self.settings, **dict(pair.split("=") for pair in pairs)}
        name = settings["stack_name"]
        template = synth(self.folder / f"{name}-{len(settings)}", settings)
        cloudformation = self.client("cloudformation")
        stacks = cloudformation.describe_stacks()["Stacks"]
        if name not in [stack["StackName"] for stack in stacks]:
            self.stack = deploy(self.embedded, template, name=name)
            return
        document = json.loads(template.read_text(encoding="utf-8"))
        # ministack does not know the account in a condition.
        account = self.client("sts").get_caller_identity()["Account"]
        conditions = json.dumps(document.get("Conditions", {}))
        conditions = conditions.replace('{"Ref": "AWS::AccountId"}', json.dumps(account))
        body = json.dumps({**document, "Conditions": json.loads(conditions)})
        kept = [
            {"ParameterKey": name, "UsePreviousValue": True}
            for name in json.loads(body).get("Parameters", {})
        ]
        # As the CDK does: a call takes at most 51,200 bytes.
        key, bucket = f"{name}-update.template.json", _upload_assets(self.embedded, template.parent)
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=body.encode())
        cloudformation.update_stack(
            StackName=name,
            TemplateURL=f"{self.embedded.endpoint_url}/{bucket}/{key}",
            Parameters=kept,
            Capabilities=["CAPABILITY_IAM"],
        )
        cloudformation.get_waiter("stack_update_complete").wait(StackName=name, **SECONDS)

    def rights(self, table):
        """The policies of the functions' roles, where `table` stands for the table's name."""
        iam, functions = self.client("iam"), self.client("lambda")
        found = {}
        for function in ("ConsumerName", "SweeperName"):
            name = self.stack.outputs[function]
            role = functions.get_function(FunctionName=name)["Configuration"]["Role"]
            role = role.rpartition("/")[2]
            policy = iam.get_role_policy(RoleName=role, PolicyName="Access")["PolicyDocument"]
            text = json.dumps(policy, sort_keys=True).replace(f"table/{table}", "table/chains")
            found[function] = json.loads(text)["Statement"]
        return found

    def xorack(self, words):
        """Run the command line."""
        assert xorack.cli.main(words) == 0

    def delete_stack(self):
        cloudformation = self.client("cloudformation")
        cloudformation.delete_stack(StackName=self.stack.name)
        cloudformation.get_waiter("stack_delete_complete").wait(
            StackName=self.stack.name, **SECONDS
        )

    def item(self, table, tag):
        key = {"tag": {"S": tag}}
        return self.client("dynamodb").get_item(TableName=table, Key=key).get("Item", {})

    def send(self, requests):
        send(self.stack.queue_url, list(requests), self.client("sqs"))

    def events(self, queue, *tags):
        return events_of(tags, queue, self.client("sqs"), seconds=600)


@pytest.fixture
def operator(tmp_path, monkeypatch):
    with EmbeddedAWS() as aws:
        for name, value in aws.environ().items():
            monkeypatch.setenv(name, value)
        operator = Operator(aws, tmp_path)
        key = aws.client("kms").create_key()["KeyMetadata"]["Arn"]
        operator.settings = {"encryption_key_arn": key, "policies_ready": "true"}
        operator.make(["deploy", "ARGS=-c stack_name=xorack"])
        yield operator


def is_open(operator, table, tag):
    return operator.item(table, tag).get("status") == {"S": "open"}


def test_chains_go_on_in_a_restored_table(operator):
    heading = "Go back to a point in time"
    dynamodb = operator.client("dynamodb")
    events = subscribe(operator.stack)
    old, stack = operator.stack.table_name, operator.stack
    rights = operator.rights(old)
    first, *rest = chain("open", 3)
    operator.send([first, rest[0], *chain("done", 1)])
    assert set(operator.events(events, "done")) == {"done"}
    assert eventually(lambda: is_open(operator, old, "open"))
    operator.follow(heading, until="NEW=")
    # The consumer stands still: what is sent now waits.
    operator.send(rest)
    operator.follow(heading, until="make deploy", after="disable-rule")
    new = operator.variables["NEW"]
    dynamodb.delete_item(TableName=old, Key={"tag": {"S": "open"}})  # the damage
    operator.follow(heading, until="--enabled", after="deletion-protection")
    assert json.loads(operator.printed) == {"batchItemFailures": []}
    operator.follow(heading, after="lambda invoke")
    (event,) = operator.events(events, "open")["open"]
    assert event["detail-type"] == "acked"
    assert operator.item(new, "open")["status"] == {"S": "acked"}
    assert operator.item(old, "open") == {}
    assert operator.item(new, "done") == operator.item(old, "done")
    # The functions may do what they might before, with the key, and check the table.
    assert all(operator.settings["encryption_key_arn"] in str(one) for one in rights.values())
    for function, restored in operator.rights(new).items():
        for one in restored:
            actions = one["Action"]
            if "dynamodb:DescribeTable" in actions:
                one["Action"] = [name for name in actions if "Describe" not in name]
        assert sorted(map(str, restored)) == sorted(map(str, rights[function]))
    # Nothing of the stack has changed but the table.
    described = operator.client("cloudformation").describe_stacks(StackName="xorack")
    outputs = {o["OutputKey"]: o["OutputValue"] for o in described["Stacks"][0]["Outputs"]}
    arn = stack.outputs["TableArn"].replace(old, new)
    assert outputs == {**stack.outputs, "TableName": new, "TableArn": arn}
    settings = dynamodb.describe_time_to_live(TableName=new)["TimeToLiveDescription"]
    assert settings["AttributeName"] == "expires_at"
    assert dynamodb.describe_table(TableName=new)["Table"]["DeletionProtectionEnabled"] is True
    backups = dynamodb.describe_continuous_backups(TableName=new)["ContinuousBackupsDescription"]
    status = backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    assert status == "ENABLED"


def test_a_new_stack_takes_over_the_table_and_the_messages_of_a_deleted_one(operator):
    heading = "Deploy again after the stack was deleted"
    functions, sqs = operator.client("lambda"), operator.client("sqs")
    old = operator.stack
    create, split, *done = chain("open", 2)
    operator.send([create])
    assert eventually(lambda: is_open(operator, old.table_name, "open"))
    (mapping,) = functions.list_event_source_mappings()["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    operator.send([split])
    (letter,) = pack(done)
    sqs.send_message(QueueUrl=old.dead_letter_queue_url, MessageBody=letter)
    operator.delete_stack()
    operator.follow(heading, until="NEW_QUEUE")
    events = subscribe(operator.stack)
    assert operator.stack.queue_url != old.queue_url
    operator.follow(heading, after="make deploy")
    (event,) = operator.events(events, "open")["open"]
    assert event["detail-type"] == "acked"
    assert operator.item(old.table_name, "open")["status"] == {"S": "acked"}
    assert operator.stack.table_name == old.table_name
    functions.invoke(FunctionName=operator.stack.outputs["SweeperName"] + ":live")
