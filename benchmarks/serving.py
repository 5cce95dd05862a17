"""`pellucid serve` against others that serve the same CTranslate2 model, with 1 to 128 clients.

    python -m benchmarks serving [--bundle DIR] [--seconds 4] [--rounds 3] [--libretranslate PYTHON]

Every contestant is a server in a process of its own, without PyTorch, all limits off; one client
process asks one of them at a time, over connections that stay open, each client as fast as it gets
answers; turns are taken. The contestants:

- pellucid: as it is.
- plain: a FastAPI handler that calls CTranslate2 for each request, with CTranslate2's own defaults
  for threads and with our search (beam 4, patience 2), so that its answers are the same.
- plain, tuned: the same with a thread of CTranslate2 for each core.
- libretranslate: its own code with waitress, as it starts by default (beam 4, patience 1, which is
  less work), in the Python that --libretranslate names. Its sentence splitter, which fetches a
  model, is replaced by none, and its tokenizer adds the two symbols that our model wants.
- offline: no server; CTranslate2 and SentencePiece on all sentences in one call.

Ratios are of one round, and the median of the rounds. Beside them stands what a request costs in
processor time of the server, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLIENTS = (1, 8, 32, 128)
ROOT = Path(__file__).parents[1]

WHO = ["A man", "Two women", "A young girl", "Three children", "An old man", "A brown dog",
       "A group of people", "A cyclist", "The boy in a red shirt", "A street musician"]  # fmt: skip
DOES = ["plays the guitar", "is running", "sits on a bench", "looks at the camera", "jumps",
        "is waiting for the bus", "carries a large bag", "is eating ice cream"]  # fmt: skip
WHERE = ["", " in the park", " near the water", " on a busy street", " in front of a house",
         " at the beach with two friends", " while it is snowing"]  # fmt: skip


def sentences(count: int) -> list[str]:
    """Short made-up sentences."""
    draw = random.Random(1)
    return [f"{draw.choice(WHO)} {draw.choice(DOES)}{draw.choice(WHERE)}." for _ in range(count)]


# What the others run, each in a process of its own.

PLAIN = """
import os, sys
import ctranslate2, sentencepiece, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
folder, target, tuned, port = sys.argv[1], sys.argv[2], sys.argv[3] == "tuned", int(sys.argv[4])
words = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
cores = len(os.sched_getaffinity(0))
how = {"inter_threads": cores, "intra_threads": 1} if tuned else {}
model = ctranslate2.Translator(f"{folder}/ct2", **how)
app = FastAPI()
class Asked(BaseModel):
    q: str
    source: str
    target: str
@app.post("/translate")
def translate(asked: Asked):
    tokens = [f"<2{target}>", *words.encode(asked.q, out_type=str), "</s>"]
    (result,) = model.translate_batch([tokens], beam_size=4, patience=2, max_input_length=0)
    return {"translatedText": words.decode(result.hypotheses[0])}
uvicorn.run(app, port=port, log_level="critical")
"""

OFFLINE = """
import os, sys, time
import ctranslate2, sentencepiece
from benchmarks.serving import sentences
folder, target = sys.argv[1:3]
words = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
cores = len(os.sched_getaffinity(0))
model = ctranslate2.Translator(f"{folder}/ct2", inter_threads=cores, intra_threads=1)
for line in sys.stdin:
    lines = sentences(int(line))
    start, used = time.perf_counter(), time.process_time()
    tokens = [[f"<2{target}>", *t, "</s>"] for t in words.encode(lines, out_type=str)]
    made = model.translate_batch(tokens, max_batch_size=1024, batch_type="tokens", beam_size=4,
                                 patience=2, max_input_length=0)
    words.decode([r.hypotheses[0] for r in made])
    print(len(lines) / (time.perf_counter() - start), (time.process_time() - used) / len(lines),
          flush=True)
"""

LIBRE = """
import sys
import argostranslate.sbd as sbd, argostranslate.tokenizer as tokenizer
target, port = sys.argv[1:3]
sbd.MiniSBDSentencizer.__init__ = lambda self, pkg: None
sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
plain = tokenizer.SentencePieceTokenizer.encode
tokenizer.SentencePieceTokenizer.encode = lambda self, text: [
    f"<2{target}>", *plain(self, text), "</s>"]
sys.argv = ["libretranslate", "--port", port, "--disable-web-ui"]
from libretranslate.main import main
main()
"""


class Contestant:
    """A server in a process."""

    def __init__(self, name: str, command: list[str], port: int, **environment: str) -> None:
        self.name, self.port = name, port
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def cpu(self) -> float:
        """Seconds of processor that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


async def _client(port: int, bodies: list[bytes], end: float, took: list[float]) -> None:
    """Ask again and again until the end; the seconds of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = random.randrange(len(bodies))
    while time.perf_counter() < end:
        start = time.perf_counter()
        writer.write(bodies[number % len(bodies)])
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode()[:200])
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        assert answer["translatedText"]
        took.append(time.perf_counter() - start)
        number += 1
    writer.close()


async def _load(port: int, clients: int, seconds: float, bodies: list[bytes]) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds
    await asyncio.gather(*(_client(port, bodies, end, took) for _ in range(clients)))
    return took


def measured(
    one: Contestant, clients: int, seconds: float, bodies: list[bytes]
) -> dict[str, float]:
    """Requests a second, latencies in milliseconds, and processor milliseconds of a request."""
    used, start = one.cpu(), time.perf_counter()
    took = sorted(asyncio.run(_load(one.port, clients, seconds, bodies)))
    lasted, used = time.perf_counter() - start, one.cpu() - used
    found = {"a second": len(took) / lasted, "cpu ms": used / len(took) * 1000}
    for share in (50, 95, 99):
        found[f"p{share} ms"] = took[min(len(took) - 1, len(took) * share // 100)] * 1000
    return found


def _request(source: str, target: str, text: str) -> bytes:
    body = json.dumps({"q": text, "source": source, "target": target}).encode()
    return (
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )


def _ready(one: Contestant, body: bytes) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            took: list[float] = []
            asyncio.run(_client(one.port, [body], time.perf_counter() + 0.2, took))
            return
        except (OSError, RuntimeError, asyncio.IncompleteReadError):
            if time.monotonic() > end or one.process.poll() is not None:
                raise SystemExit(f"serving: {one.name} does not answer") from None
            time.sleep(0.3)


def _argos(workspace: Path, bundle: Path, source: str, target: str) -> None:
    """The model as LibreTranslate reads it: twice, as it fetches more when it finds only one."""
    for a, b in ((source, target), (target, source)):
        package = workspace / "packages" / f"{a}_{b}"
        package.mkdir(parents=True)
        shutil.copytree(bundle / "ct2", package / "model")
        shutil.copy(bundle / "tokenizer.model", package / "sentencepiece.model")
        about = {"package_version": "1.0", "argos_version": "1.9", "from_code": a, "from_name": a,
                 "to_code": b, "to_name": b}  # fmt: skip
        (package / "metadata.json").write_text(json.dumps(about))


def _started(
    bundle: Path, source: str, target: str, libre: str | None, workspace: Path
) -> list[Contestant]:
    first = 18_400
    python, folder = sys.executable, str(bundle)
    serve = ["-m", "pellucid", "serve", "--model", folder, "--port", str(first)]
    serve += ["--req-limit", "0"]
    found = [Contestant("pellucid", [python, *serve], first)]
    for number, kind in enumerate(("plain", "tuned"), first + 1):
        name = "plain" if kind == "plain" else "plain, tuned"
        command = [python, "-c", PLAIN, folder, target, kind, str(number)]
        found.append(Contestant(name, command, number))
    if libre is not None:
        _argos(workspace, bundle, source, target)
        found.append(
            Contestant(
                "libretranslate",
                [libre, "-c", LIBRE, target, str(first + 3)],
                first + 3,
                HOME=str(workspace),
                ARGOS_PACKAGES_DIR=str(workspace / "packages"),
                XDG_DATA_HOME=str(workspace / "data"),
                XDG_CONFIG_HOME=str(workspace / "config"),
            )
        )
    return found


def _offline(process: Any, count: int) -> tuple[float, float]:
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    rate, cost = process.stdout.readline().split()
    return float(rate), float(cost) * 1000


def main(arguments: Sequence[str] = ()) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks serving")
    parser.add_argument("--bundle")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libretranslate", default=os.environ.get("LIBRETRANSLATE_PYTHON"))
    options = parser.parse_args(arguments)
    from pellucid.translator.loading import open_bundle

    opened = open_bundle(options.bundle)
    ways = [direction.split("-") for direction in opened.directions]
    source, target = next((way for way in ways if way[0] == "en"), ways[0])
    bodies = [_request(source, target, text) for text in sentences(200)]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        contestants = _started(opened.folder, source, target, options.libretranslate, Path(place))
        offline = subprocess.Popen(
            [sys.executable, "-c", OFFLINE, str(opened.folder), target],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            for one in contestants:
                _ready(one, bodies[0])
            _offline(offline, 200)
            for clients in CLIENTS:
                results[f"{clients} clients"] = _round_robin(
                    contestants, offline, clients, options.seconds, options.rounds, bodies
                )
        finally:
            offline.kill()
            for one in contestants:
                one.close()
    return {
        "title": "Serving",
        "table": _table(results),
        "note": f"the model {opened.folder.name}, {source}-{target}, short sentences, beam 4; "
        f"{options.rounds} rounds of {options.seconds:g} s, medians",
        "goals": _goals(results["32 clients"]),
        "by_clients": results,
    }


def _goals(found: dict[str, Any]) -> dict[str, float | None]:
    over = found["throughput of pellucid over"]
    libre = found.get("libretranslate")
    later = found["pellucid"]["p95 ms"] / libre["p95 ms"] if libre else None
    return {
        "32 clients: at least 3 times LibreTranslate's throughput": over.get("libretranslate"),
        "32 clients: p95 at most 1.00 of LibreTranslate's": later,
        "32 clients: at least 0.80 of the bare engine's offline throughput": over["offline"],
    }


def _table(results: dict[str, Any]) -> dict[str, Any]:
    keys = ("a second", "p50 ms", "p95 ms", "p99 ms", "cpu ms")
    rows = []
    for clients, found in results.items():
        over = found["throughput of pellucid over"]
        for name in (name for name in found if name != "throughput of pellucid over"):
            numbers = [f"{found[name][key]:.1f}" if key in found[name] else "" for key in keys]
            rows.append([clients, name, *numbers, f"{over[name]:.2f}x" if name in over else ""])
    columns = ["", "", "requests a second", "p50 ms", "p95 ms", "p99 ms",
               "processor ms a request", "pellucid over it"]  # fmt: skip
    return {"columns": columns, "rows": rows}


def _round_robin(
    contestants: list[Contestant],
    offline: Any,
    clients: int,
    seconds: float,
    rounds: int,
    bodies: list[bytes],
) -> dict[str, Any]:
    """All contestants in turn; medians, and our throughput over that of each."""
    seen: dict[str, list[dict[str, float]]] = {one.name: [] for one in contestants}
    bare = []
    for number in range(rounds):
        turn = number % len(contestants)
        for one in contestants[turn:] + contestants[:turn]:
            seen[one.name].append(measured(one, clients, seconds, bodies))
        bare.append(_offline(offline, 400))
    found: dict[str, Any] = {
        name: {key: round(statistics.median(r[key] for r in rows), 2) for key in rows[0]}
        for name, rows in seen.items()
    }
    found["offline"] = {
        "a second": round(statistics.median(rate for rate, _ in bare), 2),
        "cpu ms": round(statistics.median(cost for _, cost in bare), 2),
    }
    ours = seen["pellucid"]
    ratios = {
        name: round(
            statistics.median(
                a["a second"] / b["a second"] for a, b in zip(ours, rows, strict=True)
            ), 2
        )
        for name, rows in seen.items() if name != "pellucid"
    }  # fmt: skip
    ratios["offline"] = round(
        statistics.median(a["a second"] / rate for a, (rate, _) in zip(ours, bare, strict=True)), 2
    )
    found["throughput of pellucid over"] = ratios
    print(clients, "clients:", json.dumps(found), flush=True)
    return found
