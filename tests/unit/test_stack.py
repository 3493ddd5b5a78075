"""An acker is found by its stack or its queue."""

from unittest.mock import MagicMock

import pytest

from xorack.aws.stack import find_stack
from xorack.errors import StateError

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/stamps"
OUTPUTS = {
    "TableName": "chains",
    "QueueUrl": QUEUE,
    "DeadLetterQueueUrl": f"{QUEUE}-dead",
    "EventBusName": "bus",
    "RetentionSeconds": "60",
}


def aws(values, tags):
    """The clients of an account with a stack `shop` and a queue."""
    client = MagicMock()
    client.list_queue_tags = lambda QueueUrl: {"Tags": tags}
    outputs = [{"OutputKey": name, "OutputValue": value} for name, value in values.items()]
    stack = {"StackStatus": "CREATE_COMPLETE", "Outputs": outputs}
    client.describe_stacks = lambda StackName: {"shop": {"Stacks": [stack]}}[StackName]
    return lambda service: client


@pytest.mark.parametrize("where", ["shop", QUEUE])
def test_it_is_found_by(where):
    found = find_stack(where, aws(OUTPUTS, {"aws:cloudformation:stack-name": "shop"}))
    assert (found.table_name, found.queue_url, found.retention_ms) == ("chains", QUEUE, 60_000)


def test_a_queue_of_no_stack_is_named():
    with pytest.raises(StateError, match=f"^the queue {QUEUE} was not created by CloudFormation"):
        find_stack(QUEUE, aws({}, {}))


def test_a_prefix_alone_names_no_stack():
    with pytest.raises(StateError, match="name of the stack before the prefix is missing"):
        find_stack("/Orders", aws(OUTPUTS, {}))


@pytest.mark.parametrize("where", ["shop/Orders", f"{QUEUE}-orders"])
def test_one_of_several_ackers_of_a_stack_is_found_by(where):
    orders = {f"Orders{name}": value for name, value in OUTPUTS.items()}
    orders |= {"OrdersTableName": "orders", "OrdersQueueUrl": f"{QUEUE}-orders"}
    found = find_stack(where, aws(OUTPUTS | orders, {"aws:cloudformation:stack-name": "shop"}))
    assert (found.table_name, found.queue_url) == ("orders", f"{QUEUE}-orders")
