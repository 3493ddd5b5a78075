"""PySpark's daemon, which forks the Python workers, with the imports of their tasks done once."""

import boto3  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark.daemon import manager

import pipeline.scan  # noqa: F401
import xorack.spark.packing
import xorack.spark.sending  # noqa: F401

if __name__ == "__main__":
    manager()
