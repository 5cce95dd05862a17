"""The function for Spark: frames in, frames out; with Spark itself where it is installed."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from ray import cloudpickle

from pellucid.bulk import spark_translate
from pellucid.bundle import Bundle
from pellucid.errors import InputError
from pellucid.translator import Translator
from tests.bulk.files import sentences


def frames() -> Iterator[pd.DataFrame]:
    texts = sentences(70)
    for start in range(0, 70, 25):
        part = texts[start : start + 25]
        yield pd.DataFrame({"id": range(start, start + len(part)), "text": part})


def test_frames(bundle: Bundle, translator: Translator) -> None:
    """Each frame has its rows in order; nothing is read ahead of what is asked for."""
    translate = spark_translate(bundle.folder, column="text", into="english", beam_size=1)
    translate = pickle.loads(cloudpickle.dumps(translate))  # as it comes to another process
    made = list(translate(frames()))
    assert [len(frame) for frame in made] == [25, 25, 20]
    table = pd.concat(made)
    assert list(table.columns) == ["id", "text", "english"]
    assert table.drop(columns="english").equals(pd.concat(frames()))
    for frame in made:
        assert list(frame["english"]) == list(
            translator.translate_lines(frame["text"], beam_size=1)
        )
    taken = []

    def watched() -> Iterator[pd.DataFrame]:
        for number, frame in enumerate(frames()):
            taken.append(number)
            yield frame

    next(translate(watched()))
    assert taken == [0]
    assert list(translate(iter([]))) == []


def test_rows_without_a_text(bundle: Bundle) -> None:
    frame = pd.DataFrame({"text": ["42", None, float("nan"), 7, ""]}, dtype=object)
    translate = spark_translate(bundle.folder, column="text", into="made", reason="why")
    (made,) = translate(iter([frame]))
    assert made["made"].tolist() == ["42", None, None, None, ""]
    assert made["why"].tolist() == [None, None, None, "int and not a string", None]
    assert list(frame.columns) == ["text"]
    with pytest.raises(InputError, match="needs column"):
        spark_translate(bundle.folder, column="")


REAL = """
import sys
from pyspark.sql import SparkSession
from pellucid.bulk import spark_translate

folder, added, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.addFile(folder, recursive=True)
frame = spark.createDataFrame([(i, f"le phare {i}" if i else None) for i in range(rows)],
                              "id long, text string").repartition(2)
schema = "id long, text string, english string, why string"
for model in (folder, added):
    translate = spark_translate(model, column="text", into="english", reason="why", beam_size=1)
    for row in sorted(frame.mapInPandas(translate, schema).collect()):
        print(row.id, row.text, row.english, row.why, sep="\\t")
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("pyspark"), reason="Spark is not installed")
def test_with_spark(bundle: Bundle, translator: Translator, tmp_path: Path) -> None:
    """Also with a model that each machine gets from Spark, in place of a folder it has."""
    script = tmp_path / "with_spark.py"
    script.write_text(REAL)
    gone = tmp_path / "nowhere" / bundle.folder.name
    run = subprocess.run(
        [sys.executable, str(script), str(bundle.folder), str(gone), "40"],
        capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    rows = [line.split("\t") for line in run.stdout.splitlines()]
    expected = [["0", "None", "None", "None"]]
    expected += [[str(i), f"le phare {i}", translator(f"le phare {i}", beam_size=1), "None"]
                 for i in range(1, 40)]  # fmt: skip
    assert rows == expected * 2
