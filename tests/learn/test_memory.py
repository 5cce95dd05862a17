"""Memory stays flat however many lines are translated: a real engine, a very small model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundles import write_bundle

CODE = """
import resource, sys
import pellucid
few, many = int(sys.argv[2]), int(sys.argv[3])
translator = pellucid.load(sys.argv[1], "ct2", threads=1)
lines = (f"le phare {number % 97} dort" for number in range(many))
settings = {"beam_size": 1, "max_length": 3}
for count, line in enumerate(translator.translate_lines(lines, **settings), 1):
    if count == few:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert count == many
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts kilobytes on Linux")
@pytest.mark.parametrize(
    ("few", "many"),
    [(5_000, 15_000), pytest.param(20_000, 200_000, marks=pytest.mark.slow)],
)
def test_the_peak_does_not_grow(tmp_path: Path, few: int, many: int) -> None:
    """Ten times the lines may not take 8 MB more: 40 bytes a line would."""
    folder = write_bundle(
        tmp_path / "model", d_model=8, d_ff=8, num_heads=1, encoder_layers=1,
        decoder_layers=1,
    ).folder  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", CODE, str(folder), str(few), str(many)],
        capture_output=True,
        text=True,
        check=True,
        timeout=540,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    grown = int(run.stdout)
    print(f"{few:,} to {many:,} lines: {grown} kB more")
    assert grown < 8_000
