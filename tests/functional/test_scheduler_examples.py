"""The routers of docs/schedulers.md, over stubs of what Airflow and Dagster document.

tests/infrastructure/test_schedulers.py runs them under the real ones.
"""

import importlib
import json
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from examples import billing
from tests.support.functions import message as of
from xorack.core.request import Request
from xorack.core.stamp import traced


class Named:
    """An asset or an alias: equal by its name."""

    def __init__(self, name, watchers=()):
        self.name, self.watchers = name, watchers

    def __eq__(self, other):
        return (type(self), self.name) == (type(other), other.name)

    def __hash__(self):
        return hash(self.name)


class Alias(Named):
    """An AssetAlias."""


class Events(dict):
    """The outlet events of a task: `[alias].add(asset, extra=…)`."""

    def __missing__(self, alias):
        made = self[alias] = SimpleNamespace(added=[])
        made.add = lambda asset, extra: made.added.append((asset.name, extra))
        return made


DAGS: dict[str, dict] = {}


def dag(**options):
    def decorate(function):
        def make():
            DAGS[function.__name__] = {"options": options, "tasks": {}}
            DAGS["now"] = DAGS[function.__name__]
            function()

        return make

    return decorate


def task(function=None, **options):
    if function is None:
        return lambda one: task(one, **options)
    return lambda: DAGS["now"]["tasks"].update({function.__name__: (function, options)})


def module(name, **names):
    made = ModuleType(name)
    vars(made).update(names)
    return made


def loaded(monkeypatch, example, stubs):
    for name, names in stubs.items():
        monkeypatch.setitem(sys.modules, name, module(name, **names))
    for name in ("airflow_dag", example):
        monkeypatch.delitem(sys.modules, f"examples.{name}", raising=False)
    return importlib.import_module(f"examples.{example}")


@pytest.fixture
def airflow(monkeypatch):
    packages = ["airflow", "airflow.providers", "airflow.providers.common"]
    packages += ["airflow.providers.common.messaging", f"{packages[-1]}.messaging.triggers"]
    trigger = {"MessageQueueTrigger": SimpleNamespace}
    sdk = {"Asset": Named, "AssetAlias": Alias, "AssetWatcher": SimpleNamespace}
    return loaded(
        monkeypatch,
        "airflow_router",
        {
            **{name: {} for name in packages},
            "airflow.providers.common.messaging.triggers.msg_queue": trigger,
            "airflow.sdk": {**sdk, "dag": dag, "task": task},
        },
    )


@pytest.fixture
def dagster(monkeypatch):
    def decorator(*functions, **options):
        return functions[0] if functions else lambda one: one

    names = dict.fromkeys(("op", "job", "sensor"), decorator)
    names |= dict.fromkeys(("RunRequest", "RetryPolicy", "Definitions"), SimpleNamespace)
    names |= {"OpExecutionContext": object, "SensorEvaluationContext": object}
    return loaded(monkeypatch, "dagster_router", {"dagster": names})


def message(tag, id="e1"):
    detail = {"id": id, "tag": tag, "status": "acked"}
    return {"Body": json.dumps({"detail": detail}), "ReceiptHandle": f"r-{tag}"}


def test_airflow_routes_one_queue_to_many_dags(airflow, capsys):
    ended, events = airflow.ended, Events()
    (watcher,) = ended.watchers
    assert watcher.trigger.sqs_queue == airflow.QUEUE
    assert DAGS["route_chains"]["options"]["schedule"] == [ended]
    route, options = DAGS["route_chains"]["tasks"]["route"]
    batch = [message("order/1"), message("order/1"), message("file/2", "e2"), message("x/3", "e3")]
    payload = {"payload": {"message_batch": batch}}
    route({ended: [SimpleNamespace(extra=payload)]}, events)
    assert options["outlets"] == [airflow.routed]
    assert events[airflow.routed].added == [
        ("orders_ended", {"tags": ["order/1"]}),
        ("files_ended", {"tags": ["file/2"]}),
    ]
    assert "no route ['x/3']" in capsys.readouterr().out


def test_airflow_bills_what_is_acked_though_events_are_lost(airflow, monkeypatch):
    """One run at a time: events that came meanwhile may wake nobody."""
    monkeypatch.setattr(airflow, "bill_acked", lambda run: [f"{run}/1", f"{run}/2"])
    for name in ("bill_orders", "bill_late_orders"):
        assert DAGS[name]["options"]["max_active_runs"] == 1
        assert DAGS[name]["tasks"]["bill"][0]() == ["order/1", "order/2"]
    assert DAGS["bill_orders"]["options"]["schedule"] == [airflow.orders]
    assert DAGS["bill_late_orders"]["options"]["schedule"] == "@hourly"


def test_dagster_routes_one_queue_to_many_jobs(dagster, monkeypatch):
    batch = [message("order/1"), message("file/2", "e2"), message("x/3", "e3")]
    deleted = []
    sqs = SimpleNamespace(
        receive_message=lambda **_: {"Messages": batch},
        delete_message=lambda **arguments: deleted.append(arguments["ReceiptHandle"]),
    )
    monkeypatch.setattr(dagster.boto3, "client", lambda service: sqs)
    context = SimpleNamespace(cursor=None)
    context.update_cursor = lambda cursor: setattr(context, "cursor", cursor)
    requests = [(one.run_key, one.job_name) for one in dagster.chains_ended(context)]
    assert requests == [("e1", "bill_orders"), ("e2", "load_file")]
    assert deleted == []  # a sensor that dies here sees its messages again
    batch = []
    assert [*dagster.chains_ended(context)] == []
    assert deleted == ["r-order/1", "r-file/2", "r-x/3"]


class Died(BaseException):
    """The end of a task."""


def test_a_task_that_is_retried_bills_nothing_twice(
    aws, functions, stack, xorack, monkeypatch, capsys
):
    """Acked chains are looked up by the command that the docs name, over the acker's table."""
    creates = [Request.create(f"order/{n}", "c", traced(5), started=1) for n in range(3)]
    done = [Request.stamp_(f"order/{n}", "s", traced(5), finished=1) for n in range(2)]
    functions.consume(of(*creates, *done))
    capsys.readouterr()  # the function's log
    monkeypatch.setattr(subprocess, "run", run_by(xorack))
    kept, charges, keys = {}, [], set()

    class Table:
        def get_item(self, Key, ConsistentRead):
            return {"Item": Key} if Key["tag"] in kept else {}

        def put_item(self, Item):
            if Item["tag"] not in kept and len(charges) == 2:
                raise Died  # after the charge, before its record
            kept[Item["tag"]] = Item

    def charge(tag, idempotency_key):
        charges.append(tag)
        keys.add(idempotency_key)

    monkeypatch.setattr(billing, "charge", charge)
    with pytest.raises(Died):
        billing.bill_acked("order", Table())
    assert len(billing.bill_acked("order", Table())) == 1
    assert billing.bill_acked("order", Table()) == []
    assert keys == {"order/0", "order/1"}  # the service charges once a key
    assert len(charges) == 3


def run_by(xorack):
    def run(command, **_):
        status, out, err = xorack(*command[1:])
        assert status == 0, err
        return SimpleNamespace(stdout="\n".join(out))

    return run
