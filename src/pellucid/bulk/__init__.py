"""Bulk translation: many files, on one machine or many with Ray, and a function for Spark.

Ray, pyarrow and pandas are imported where they are needed: `pip install 'pellucid[cluster]'`.
"""

from pellucid.bulk.spark import spark_translate

__all__ = ["spark_translate"]
