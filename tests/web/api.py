"""What the server says, asked without a browser; and what the model computes, without a server."""

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np

from pellucid.bundle import Bundle
from pellucid.decoding.engine_selection import open_torch
from pellucid.decoding.options import DecodingOptions
from pellucid.inspection import Trace
from pellucid.inspection.tracing import AblatedHead, look_inside


def ask(address: str, path: str, **body: Any) -> Any:
    """The answer to a question, from JSON."""
    data = json.dumps(body).encode() if body else None
    request = Request(f"{address}/{path}", data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def tensor(address: str, trace: dict[str, Any], name: str) -> np.ndarray:
    """A tensor of a trace, as the page gets it."""
    with urlopen(f"{address}/trace/{trace['id']}/tensor?path={quote(name)}", timeout=60) as answer:
        return np.frombuffer(answer.read(), dtype="<f4").reshape(trace["shapes"][name])


@cache
def _opened(folder: Path) -> tuple[Bundle, Any]:
    bundle = Bundle.open(folder)
    return bundle, open_torch(bundle)


def traced(folder: Path, text: str, *, direction: str = "xa-xb", **more: Any) -> Trace:
    """The trace as Python makes it, in this process."""
    bundle, engine = _opened(folder)
    off = [AblatedHead(*switch) for switch in more.pop("off", ())]
    changes = {name: more.pop(name) for name in ("prefix", "without") if name in more}
    return look_inside(
        engine.model,
        bundle.tokenizer,
        engine.special,
        text,
        direction,
        DecodingOptions(**{"beam_size": 4, **more}),
        off=off,
        **changes,
    )


def number(text: str) -> float:
    """A number as the page writes it."""
    return float(text.replace("−", "-").replace(",", "").replace("∞", "inf"))
