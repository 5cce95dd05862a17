"""Made-up translation tasks, learned in seconds: digit words copied, reversed, sorted.

Real training has recipes, checkpoints and validation; this is only the heart of it, to read and
to test the model with: teacher forcing, cross-entropy, Adam, and greedy decoding with the cache.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.model import ModelConfig, Transformer

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
VOCABULARY = ["<pad>", "<start>", "<end>", *DIGITS]
PAD, START, END = range(3)
LONGEST = 8

Task = Callable[[Sequence[int]], list[int]]
TASKS: dict[str, Task] = {"copy": list, "reverse": lambda ids: list(ids[::-1]), "sort": sorted}


def small_model(**changes: object) -> Transformer:
    """Two layers each, 64 wide: enough for these tasks."""
    shape = {"width": 64, "feed_forward_width": 128, "encoder_layers": 2, "decoder_layers": 2}
    settings = {"norm": "pre", "dropout": 0.0, **shape, **changes}
    return Transformer(ModelConfig.preset("tiny", vocab_size=len(VOCABULARY), **settings))


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of different length as one tensor (B, longest), filled up with padding."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def examples(count: int, generator: torch.Generator) -> list[list[int]]:
    """Random sequences of one to eight digits, as token ids."""
    lengths = torch.randint(1, LONGEST + 1, (count,), generator=generator).tolist()
    digits = torch.randint(END + 1, len(VOCABULARY), (count, LONGEST), generator=generator)
    return [row[:n] for row, n in zip(digits.tolist(), lengths, strict=True)]


def train(
    model: Transformer,
    task: Task,
    *,
    steps: int = 600,
    batch: int = 96,
    rate: float = 3e-3,
    warm_up: int = 100,
    unseen: Sequence[Sequence[int]] = (),
    seed: int = 1,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Teach a model the task; `unseen` sequences never occur in training.

    The rate rises over the warm-up and then falls to nothing. `watch` is called with each loss.
    """
    generator = torch.Generator().manual_seed(seed)
    hidden = {tuple(row) for row in unseen}
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            left = (steps - step) / (steps - warm_up)
            group["lr"] = rate * min((step + 1) / warm_up, left)
        sources = [row for row in examples(batch, generator) if tuple(row) not in hidden]
        targets = [task(row) for row in sources]
        logits = model(padded(sources), padded([[START, *row] for row in targets]))
        labels = padded([[*row, END] for row in targets])
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch(step, loss.item())
    model.eval()


@torch.inference_mode()
def translate(model: Transformer, sources: Sequence[Sequence[int]]) -> list[list[int]]:
    """The best next token, one at a time, until each row has reached its end."""
    cache = model.start(model.encode(padded(sources)))
    tokens = torch.full((len(sources), 1), START)
    written = tokens
    for _ in range(LONGEST + 2):
        logits, cache = model.decode(tokens, cache)
        tokens = logits[:, -1].argmax(dim=-1, keepdim=True)
        written = torch.cat([written, tokens], dim=1)
        if (written == END).any(dim=1).all():
            break
    return [row[1 : row.index(END)] if END in row else row[1:] for row in written.tolist()]
