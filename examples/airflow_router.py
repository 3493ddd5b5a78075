"""One queue, one poller and many Airflow DAGs, chosen by prefixes of tags. See docs/schedulers.md.

pip install 'apache-airflow>=3.1' apache-airflow-providers-{amazon,common-messaging,standard}
"""

import os
from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetAlias, AssetWatcher, dag, task

from examples.airflow_dag import details
from examples.billing import bill_acked

QUEUE = os.environ.get("CHAINS_ENDED", "https://sqs.eu-west-1.amazonaws.com/123456789012/ended")
trigger = MessageQueueTrigger(scheme="sqs", sqs_queue=QUEUE, max_messages=10, waiter_delay=10)
ended = Asset("chains_ended", watchers=[AssetWatcher(name="xorack", trigger=trigger)])
routed = AssetAlias("chains_routed")
orders, files = Asset("orders_ended"), Asset("files_ended")
ROUTES = {"order/": orders, "file/": files}


@dag(schedule=[ended], catchup=False)
def route_chains() -> None:
    """Pass ended chains on, with an event for each asset whose chains have ended."""

    @task(outlets=[routed])
    def route(triggering_asset_events: Any = None, outlet_events: Any = None) -> None:
        chains = details(triggering_asset_events[ended])
        for prefix, asset in ROUTES.items():
            if tags := [chain["tag"] for chain in chains if chain["tag"].startswith(prefix)]:
                outlet_events[routed].add(asset, extra={"tags": tags})
        if lost := [chain["tag"] for chain in chains if not chain["tag"].startswith((*ROUTES,))]:
            print("no route", lost)

    route()


@task(retries=3)
def bill() -> list[str]:
    return bill_acked("order")


@dag(schedule=[orders], catchup=False, max_active_runs=1)
def bill_orders() -> None:
    """Bill all acked orders.

    Events only start this DAG, so it does not matter if Airflow drops some of them.
    """
    bill()


@dag(schedule="@hourly", catchup=False, max_active_runs=1)
def bill_late_orders() -> None:
    """Bill orders for which no event has started `bill_orders`."""
    bill()


route_chains()
bill_orders()
bill_late_orders()
