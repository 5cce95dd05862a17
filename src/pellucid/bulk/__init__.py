"""Many files, many machines: bulk translation on Ray, and the same work as a function for Spark.

Ray, pyarrow and pandas are imported by who needs them: `pip install 'pellucid[cluster]'`.
"""

from pellucid.bulk.spark import spark_translate

__all__ = ["spark_translate"]
