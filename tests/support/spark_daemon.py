"""PySpark's daemon, which forks the Python workers, with the imports of their tasks done once."""

import boto3
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark.daemon import manager

import pipeline.scan  # noqa: F401
import xorack.spark.sending  # noqa: F401

# Loads what all clients need; workers inherit it.
boto3.client("sqs", region_name="us-east-1")

if __name__ == "__main__":
    manager()
