"""The examples for Airflow and Dagster, under the releases that the package index has."""

import os
import subprocess
import sys

import pytest

from infra.synth import ROOT

MESSAGE = """
import json, types
def message(status, tag="order/1", id="e1"):
    detail = {"id": id, "tag": tag, "status": status, "reason": "timed out"}
    return {"Body": json.dumps({"detail": detail}), "ReceiptHandle": "r1"}
"""
AIRFLOW = """
from examples import airflow_dag as example
(watcher,) = example.ended.watchers
assert watcher.trigger is example.trigger
assert example.trigger.trigger.sqs_queue == "https://queue"
def events(status):
    payload = {"message_batch": [message(status), message(status)]}
    return {example.ended: [types.SimpleNamespace(extra={"payload": payload})]}
dag = example.bill_orders()
bill = dag.task_dict["bill"].python_callable
assert bill(events("acked")) == ["order/1"]
try:
    bill(events("failed"))
except RuntimeError as error:
    assert str(error) == "chains failed: {'order/1': 'timed out'}"
    print("done")
"""
AIRFLOW_ROUTER = """
from examples import airflow_router as example
(watcher,) = example.ended.watchers
assert watcher.trigger is example.trigger
batch = [message("acked"), message("acked"), message("acked", "x/3", "e3")]
event = types.SimpleNamespace(extra={"payload": {"message_batch": batch}})
class Outlet(list):
    def add(self, asset, extra):
        self.append((asset.name, extra))
outlets = {example.routed: Outlet()}
route = example.route_chains().task_dict["route"]
assert route.outlets == [example.routed]
route.python_callable({example.ended: [event]}, outlets)
assert outlets[example.routed] == [("orders_ended", {"tags": ["order/1"]})]
from airflow.sdk.execution_time.context import OutletEventAccessor
import inspect
assert {"asset", "extra"} <= {*inspect.signature(OutletEventAccessor.add).parameters}
example.bill_acked = lambda run: [run]
bill = example.bill_orders()
assert bill.max_active_runs == 1 and bill.task_dict["bill"].python_callable() == ["order"]
print("done")
"""
DAGSTER_ROUTER = """
import dagster as dg
from examples import dagster_router as example
deleted = []
example.boto3.client = lambda service: types.SimpleNamespace(
    receive_message=lambda **_: {"Messages": [] if deleted else [message("acked")]},
    delete_message=lambda **arguments: deleted.append(arguments["ReceiptHandle"]),
)
repository = example.defs.get_repository_def()
with dg.DagsterInstance.ephemeral() as instance:
    def tick(cursor):
        context = dg.build_sensor_context(
            instance=instance, cursor=cursor, repository_def=repository
        )
        return repository.get_sensor_def("chains_ended").evaluate_tick(context)
    first = tick(None)
    (request,) = first.run_requests
    assert (request.run_key, request.job_name, deleted) == ("e1", "bill_orders", [])
    assert tick(first.cursor).run_requests == [] and deleted == ["r1"]
example.bill_acked = lambda run: billed.append(run)
billed = []
assert example.bill_orders.execute_in_process().success and billed == ["order"]
print("done")
"""
DAGSTER = """
import dagster as dg
from examples import dagster_sensor as example
deleted = []
example.boto3.client = lambda service: types.SimpleNamespace(
    receive_message=lambda QueueUrl, **_: {"Messages": [message("acked")]},
    delete_message=lambda **arguments: deleted.append(arguments),
)
(request,) = example.orders_ended(dg.build_sensor_context())
assert (request.run_key, deleted) == ("e1", [])
assert example.bill_order.execute_in_process(run_config=request.run_config).success
assert deleted == [{"QueueUrl": "https://queue", "ReceiptHandle": "r1"}]
print("done")
"""
PROVIDERS = "apache-airflow-providers-amazon apache-airflow-providers-common-messaging"
CASES = {
    "airflow": (f"apache-airflow>=3.1 {PROVIDERS} boto3", AIRFLOW, AIRFLOW_ROUTER),
    "dagster": ("dagster boto3", DAGSTER, DAGSTER_ROUTER),
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # it installs some 300 MB
@pytest.mark.parametrize("name", CASES)
def test_the_example_deals_with_the_events_of_chains(name, tmp_path):
    packages, *programs = CASES[name]
    uv = [sys.executable, ROOT / "tools" / "venv.py", "uv"]
    python = tmp_path / "env" / "bin" / "python"
    for command in (
        ["venv", "--quiet", "--python", sys.executable, tmp_path / "env"],
        ["pip", "install", "--quiet", "--python", python, *packages.split()],
    ):
        subprocess.run([*uv, *command], check=True)
    homes = {"AIRFLOW_HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path)}
    for program in programs:
        done = subprocess.run(
            [python, "-c", MESSAGE + program],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **homes, "ORDERS_ENDED": "https://queue"},
        )
        assert done.stdout.splitlines()[-1:] == ["done"], done.stderr
