"""The dashboard and the composite alarms of the synthesised stack, in the embedded AWS."""

import json

import pytest

import xorack
from tests.support.services import apply_requests
from xorack.aws.dynamodb_store import DynamoDBStore
from xorack.aws.retry import RetryPolicy
from xorack.core.request import Request

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def widgets(stack):
    """The dashboard's widgets as CloudWatch has them, with names and ARNs."""
    cloudwatch = stack.client("cloudwatch")
    name = stack.outputs["DashboardName"]
    assert name == f"{stack.name}-{cloudwatch.meta.region_name}"
    return json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])["widgets"]


def test_the_custom_widget_shows_unfinished_chains(stack, widgets):
    tag = "stuck/<1>"
    create = Request.create(tag, "c", xorack.traced(0xFEED), timeout=1800)
    store = DynamoDBStore(stack.table_name, client=stack.client("dynamodb"))
    apply_requests(store, tag, [create], policy=RetryPolicy())
    (custom,) = (w["properties"] for w in widgets if w["type"] == "custom")
    # CloudWatch adds the widget's context to its parameters.
    event = {**custom["params"], "widgetContext": {"theme": "dark", "params": custom["params"]}}

    def invoke(event):
        response = stack.client("lambda").invoke(
            FunctionName=custom["endpoint"], Payload=json.dumps(event)
        )
        assert "FunctionError" not in response
        return json.load(response["Payload"])

    page = invoke(event)
    assert ">stuck/&lt;1&gt;<" in page
    assert "000000000000feed" in page
    assert "## Unfinished chains" in invoke({"describe": True})
