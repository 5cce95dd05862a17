"""The program `pellucid`: registers the commands of all rooms and runs one."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from pellucid import __version__
from pellucid.cli.parser import Commands
from pellucid.errors import PellucidError

COMMANDS = {
    "data": (
        "pellucid.data.command:data",
        "Fetch a known corpus, or prepare the corpora of a recipe for training.",
    ),
    "plan": (
        "pellucid.training.command:plan",
        "Estimate what a training run takes: parameters, FLOPs, memory, time and money.",
    ),
    "train": (
        "pellucid.training.command:train",
        "Train a model from a recipe.",
    ),
    "report": (
        "pellucid.training.command:report",
        "Write report.html of a training run, finished or still running.",
    ),
    "evaluate": (
        "pellucid.evaluation.command:evaluate",
        "Evaluate translations: BLEU, chrF and TER, and which sentences are worth a look.",
    ),
    "translate": (
        "pellucid.translator.command:translate",
        "Translate texts, the lines of standard input, or documents; or files in bulk.",
    ),
    "look": (
        "pellucid.inspection.command:look",
        "Look inside: what happens in the model for one sentence.",
    ),
    "import": (
        "pellucid.exchange.command:import_",
        "Import a public model: OPUS-MT and other Marian models.",
    ),
    "export": (
        "pellucid.exchange.command:export",
        "Export a model to CTranslate2 or Hugging Face, or as a smaller bundle to give away.",
    ),
    "serve": (
        "pellucid.server.command:serve",
        "Serve the web page and the HTTP API.",
    ),
    "serve keys add": (
        "pellucid.server.command:add_key",
        "Create an API key and show it, this once.",
    ),
    "serve keys list": (
        "pellucid.server.command:list_keys",
        "List the API keys: name, date and rate limit, not the keys themselves.",
    ),
    "serve keys revoke": (
        "pellucid.server.command:revoke_key",
        "Revoke an API key, at once, also on servers that are running.",
    ),
    "models": (
        "pellucid.translator.command:models",
        "List the models that are installed.",
    ),
}
"""Where each command is, and the first line of its docstring. The lines are repeated here so that
`pellucid --help` imports no room; tests/cli/test_parser.py compares them with the docstrings."""

app = Commands("pellucid", "A Transformer you can train, use, serve and see through.", __version__)
for _name, (_target, _summary) in COMMANDS.items():
    app.add(_name, _target, _summary)


def _without_plugins() -> None:
    """Keep pydantic from searching for plugins, and from importing what it would search with.

    It saves start-up time. If a later pydantic calls its loader otherwise, this does nothing.
    """
    if os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1") == "1":
        loader = ModuleType("pydantic.plugin._loader")
        loader.get_plugins = tuple  # type: ignore[attr-defined]
        sys.modules.setdefault(loader.__name__, loader)


def main() -> None:
    """Run a command; an error gets one clear line and an exit code, not a traceback.

    Exit codes: 0 done; 1 failed; 2 the call or the input was wrong.
    """
    _without_plugins()
    words = sys.argv[1:]
    options = words[: words.index("--") if "--" in words else None]
    debug = "--debug" in options
    try:
        app([word for word in options if word != "--debug"] + words[len(options) :])
    except PellucidError as error:
        if debug:
            raise
        if not (error.on_all_ranks and os.environ.get("RANK", "0") != "0"):
            print(f"pellucid: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("pellucid: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`pellucid ... | head`): leave quietly, and keep Python
        # from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
