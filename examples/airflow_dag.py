"""An Airflow DAG that runs when chains have ended. See docs/schedulers.md.

pip install 'apache-airflow>=3.1' apache-airflow-providers-{amazon,common-messaging,standard}
"""

import json
import os
from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetWatcher, dag, task

QUEUE = os.environ.get("ORDERS_ENDED", "https://sqs.eu-west-1.amazonaws.com/123456789012/ended")
trigger = MessageQueueTrigger(scheme="sqs", sqs_queue=QUEUE, max_messages=10, waiter_delay=10)
ended = Asset("orders_ended", watchers=[AssetWatcher(name="xorack", trigger=trigger)])


def details(asset_events: list[Any]) -> list[dict[str, Any]]:
    """Return the details of the chains' events. Copies of an event have the same id."""
    messages = [
        message for event in asset_events for message in event.extra["payload"]["message_batch"]
    ]
    details = (json.loads(message["Body"])["detail"] for message in messages)
    return list({detail["id"]: detail for detail in details}.values())


@dag(schedule=[ended], catchup=False)
def bill_orders() -> None:
    """Bill the orders whose chains are acked. If a chain failed, fail with its missing units."""

    @task
    def bill(triggering_asset_events: Any = None) -> list[str]:
        chains = details(triggering_asset_events[ended])
        failed = {chain["tag"]: chain["reason"] for chain in chains if chain["status"] == "failed"}
        billed = [chain["tag"] for chain in chains if chain["status"] == "acked"]
        print("billing", billed)
        if failed:
            raise RuntimeError(f"chains failed: {failed}")
        return billed

    bill()


bill_orders()
