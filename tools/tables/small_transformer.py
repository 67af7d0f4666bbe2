"""Train the models of chapter 9 from three seeds, and measure how fast one of them writes.

python tools/tables/small_transformer.py             the tables of book/_tables/, in about twelve minutes
python tools/tables/small_transformer.py speed       one of them: models, speed, translators
"""

import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch.nn.functional import cross_entropy

import attn_tutor.torch as at
from attn_tutor.bench.command import cores, processor
from attn_tutor.data import decode_digits, load_book, number_pairs
from attn_tutor.torch.masks import padding_mask
from attn_tutor.torch.models.transformer_translator import Read

TABLES = Path(__file__).resolve().parents[2] / "book" / "_tables"
COMMAND = "python tools/tables/small_transformer.py"
KINDS: tuple[Literal["rotary", "sinusoidal", "alibi"] | None, ...]
KINDS = ("rotary", "sinusoidal", "alibi", None)
SEEDS = (0, 1, 2)
CONTEXT, BATCH, STEPS, RATE = 64, 16, 800, 6e-3  # as in the chapter
LENGTHS = (64, 128, 256, 512, 1024)
REPEATS = 3
PAIR_STEPS, PAIR_BATCH, MOST_WORDS, MOST_SHIFT = 600, 64, 10, 7

text = load_book()
alphabet = sorted(set(text))
ids = torch.tensor([alphabet.index(c) for c in text])
cut = 9 * len(ids) // 10
windows = ids[cut:].unfold(0, CONTEXT + 1, CONTEXT)


def draw(generator: torch.Generator) -> torch.Tensor:
    starts = torch.randint(cut - CONTEXT, (BATCH, 1), generator=generator)
    return ids[starts + torch.arange(CONTEXT + 1)]


def loss(model: at.LanguageModel, batch: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def small(kind: Literal["rotary", "sinusoidal", "alibi"] | None) -> at.LanguageModel:
    return at.LanguageModel(len(alphabet), 64, 4, 2, positions=kind)


def models() -> str:
    """Validation losses of each kind and seed, and the time of a training."""
    lines = [
        "| positions | seed 0 | seed 1 | seed 2 | seconds each |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in KINDS:
        scores, start = [], time.perf_counter()
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = small(kind)
            at.train(model, loss, draw, steps=STEPS, lr=RATE, seed=seed)
            with torch.no_grad():
                scores.append(f"{loss(model, windows):.3f}")
        seconds = (time.perf_counter() - start) / len(SEEDS)
        lines.append(f"| {kind or 'none'} | {' | '.join(scores)} | {seconds:.0f} |")
    caption = f"Loss on the held-out tenth of the text, in nats a character, after {STEPS} steps."
    return "\n".join([*lines, "", f"{caption} {machine()}", ""])


def speed() -> str:
    """Seconds to write on from one character, and how many tokens go through each block."""
    lines = [
        "| n | tokens, anew | tokens, cached | s, anew | s, cached |",
        "|---:|---:|---:|---:|---:|",
    ]
    torch.manual_seed(0)
    model, start = small("rotary").eval(), torch.zeros(1, 1, dtype=torch.int64)
    for n in LENGTHS:
        taken = [seconds(model, start, n, cached) for cached in (False, True)]
        cells = [f"{n * (n + 1) // 2:,}", f"{n:,}", *(f"{x:.2g}" for x in taken)]
        lines.append(f"| {n} | {' | '.join(cells)} |")
    caption = (
        "Tokens that go through each block to write n characters, and seconds. "
        f"One text, rotary positions, the fastest of {REPEATS} runs."
    )
    return "\n".join([*lines, "", f"{caption} {machine()}", ""])


def seconds(
    model: at.LanguageModel, start: torch.Tensor, n: int, cached: bool
) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.perf_counter()
        model.generate(start, n, cached=cached)
        best = min(best, time.perf_counter() - begun)
    return best


def translators() -> str:
    """Share of held-out numbers translated right, by length, after training on at most ten words."""
    lines = [
        "| translator | 1 to 5 words | 6 to 10 | 11 to 13 | 14 to 17 |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in ("recurrent, with attention", "transformer", "transformer, shifted"):
        trained = [translator(name, seed) for seed in SEEDS]
        shares = torch.stack(
            [shares_right(model) for model in trained]
        )  # (seeds, lengths)
        low, high = shares.amin(0).tolist(), shares.amax(0).tolist()
        cells = [f"{x:.2f} to {y:.2f}" for x, y in zip(low, high, strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    caption = (
        f"Share of 2,000 held-out numbers that are right in every digit, lowest and highest of {len(SEEDS)} seeds. "
        f"Trained on {PAIR_STEPS} batches of {PAIR_BATCH} with at most {MOST_WORDS} words. "
        f"Shifted: in training each sentence's words begin at a random position from 0 to {MOST_SHIFT}."
    )
    return "\n".join([*lines, "", f"{caption} {machine()}", ""])


class Shifted(at.TransformerTranslator):
    """In training the words of each sentence begin at a random position, so that its reader trains later ones too."""

    def encode(self, words: torch.Tensor, lengths: torch.Tensor) -> Read:
        if not self.training:
            return super().encode(words, lengths)
        (b, m), X = words.shape, self.words(words)
        positions = self.encoding(torch.zeros(1, m + MOST_SHIFT, X.shape[-1]))[0]
        X = X + positions[torch.arange(m) + torch.randint(MOST_SHIFT + 1, (b, 1))]
        mask = padding_mask(lengths, m)
        for block in self.readers:
            X = block(X, mask)
        return Read(self.norm_read(X), mask)


def translator(name: str, seed: int) -> torch.nn.Module:
    words, lengths, digits = (torch.from_numpy(x) for x in number_pairs(60_000, seed=0))
    [short] = (lengths <= MOST_WORDS).nonzero(as_tuple=True)

    def draw_pairs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        chosen = short[torch.randint(len(short), (PAIR_BATCH,), generator=generator)]
        return words[chosen], lengths[chosen], digits[chosen]

    torch.manual_seed(seed)
    model: Any
    if name == "recurrent, with attention":
        model, rate = at.Translator(34, 11, 64), 3e-3
    else:
        kind = Shifted if name.endswith("shifted") else at.TransformerTranslator
        model, rate = kind(34, 11, 64, 4, 2), 2e-3
    at.train(
        model, at.translation_loss, draw_pairs, steps=PAIR_STEPS, lr=rate, seed=seed
    )
    return model


def shares_right(model: Any) -> torch.Tensor:
    """By the number of words."""
    words, lengths, digits = (
        torch.from_numpy(x) for x in number_pairs(2000, seed=1, held_out=True)
    )
    tokens, _ = model.translate(words, lengths, max_len=10)
    found, wanted = (decode_digits(x.numpy()) for x in (tokens[:, 0], digits))
    right = torch.tensor([x == y for x, y in zip(found, wanted, strict=True)]).double()
    group = torch.bucketize(lengths, torch.tensor([5, 10, 13]))
    return torch.stack([right[group == i].mean() for i in range(4)])


def machine() -> str:
    return (
        f"{processor()}, {cores()} cores, 1 of them used. "
        f"Python {platform.python_version()}, torch {torch.__version__}. Command: `{COMMAND}`."
    )


def main() -> None:
    torch.set_num_threads(1)
    tables: dict[str, Callable[[], str]] = {
        "models": models,
        "speed": speed,
        "translators": translators,
    }
    for name in sys.argv[1:] or tables:
        file = TABLES / f"small_transformer_{name}.markdown"
        file.write_text(tables[name](), encoding="utf-8")


if __name__ == "__main__":
    main()
