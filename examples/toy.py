"""The whole idea on one screen: a Transformer that learns to copy, reverse or sort digit words.

    python -m examples.toy [copy|reverse|sort]

Teacher forcing, cross-entropy, Adam with a warm-up, gradient clipping, and greedy decoding with
the KV cache. `pellucid train` adds what a real run needs: data, checkpoints, validation, resuming.
"""

import sys
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model import ModelConfig, Transformer

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
VOCABULARY = ["<pad>", "<start>", "<end>", *DIGITS]
PAD, START, END = range(3)
MAX_LENGTH = 8

Task = Callable[[Sequence[int]], list[int]]
TASKS: dict[str, Task] = {"copy": list, "reverse": lambda ids: list(ids[::-1]), "sort": sorted}


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of different length as one tensor (B, longest), filled up with padding."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def examples(count: int, generator: torch.Generator) -> list[list[int]]:
    """Draw random sequences of one to eight digits, as token ids."""
    lengths = torch.randint(1, MAX_LENGTH + 1, (count,), generator=generator).tolist()
    digits = torch.randint(END + 1, len(VOCABULARY), (count, MAX_LENGTH), generator=generator)
    return [row[:n] for row, n in zip(digits.tolist(), lengths, strict=True)]


def small_model(**changes: object) -> Transformer:
    """Build an encoder and a decoder of two layers each, 64 wide: enough for these tasks."""
    shape = {"d_model": 64, "d_ff": 128, "encoder_layers": 2, "decoder_layers": 2}
    settings = {"norm": "pre", "dropout": 0.0, **shape, **changes}
    return Transformer(ModelConfig.preset("tiny", vocab_size=len(VOCABULARY), **settings))


def train(
    model: Transformer, task: Task, *, steps: int = 600, batch_size: int = 96,
    learning_rate: float = 3e-3, warmup_steps: int = 100, max_grad_norm: float = 1.0,
    held_out: Sequence[Sequence[int]] = (), seed: int = 1,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:  # fmt: skip
    """Train on random sequences, but never on those of `held_out`."""
    generator, excluded = torch.Generator().manual_seed(seed), {tuple(row) for row in held_out}
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.9, 0.98))
    model.train()
    for step in range(steps):
        warmup, decay = (step + 1) / warmup_steps, (steps - step) / (steps - warmup_steps)
        for group in optimizer.param_groups:  # a linear warm-up, then a linear decay to 0
            group["lr"] = learning_rate * min(warmup, decay)
        sources = [row for row in examples(batch_size, generator) if tuple(row) not in excluded]
        targets = [task(row) for row in sources]
        decoder_input = padded([[START, *row] for row in targets])  # (B, T): teacher forcing
        labels = padded([[*row, END] for row in targets])  # (B, T): the next token of each
        logits = model(padded(sources), decoder_input)  # (B, T, V), all positions at once
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        on_step(step, loss.item())
    model.eval()


@torch.inference_mode()
def translate(model: Transformer, sources: Sequence[Sequence[int]]) -> list[list[int]]:
    """Decode greedily: append the most probable token until each row has its end symbol."""
    cache = model.start(model.encode(padded(sources)))  # cross-attention's keys and values, once
    token = torch.full((len(sources), 1), START)  # (B, 1)
    output = token
    for _ in range(MAX_LENGTH + 2):
        logits, cache = model.decode(token, cache)  # (B, 1, V); the cache grows by one row
        token = logits[:, -1].argmax(dim=-1, keepdim=True)
        output = torch.cat([output, token], dim=1)  # (B, tokens so far)
        if (output == END).any(dim=1).all():
            break
    return [row[1 : row.index(END)] if END in row else row[1:] for row in output.tolist()]


def main(name: str = "reverse") -> float:
    """Learn a task; print and return the fraction of held-out sequences that come out right."""
    held_out = [row for row in examples(400, torch.Generator().manual_seed(99)) if len(row) > 3]
    torch.set_num_threads(1)  # the tensors are too small to share
    torch.manual_seed(1)
    model = small_model()
    train(
        model, TASKS[name], held_out=held_out,
        on_step=lambda step, loss: step % 50 or print(f"step {step:3}  loss {loss:.3f}"),
    )  # fmt: skip
    answers = zip(held_out, translate(model, held_out), strict=True)
    right = sum(answer == TASKS[name](row) for row, answer in answers) / len(held_out)
    print(f"{name}: {right:.0%} of {len(held_out)} held-out sequences right")
    return right


if __name__ == "__main__":
    main(*sys.argv[1:])
