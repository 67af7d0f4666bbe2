"""Chapter 8's translators with three seeds, with attention and without.

python tools/translator.py      about five minutes on two cores
"""

import itertools
from time import perf_counter

import numpy as np
import torch

from attn_tutor.bench.command import processor
from attn_tutor.data import NumberPairs, decode_digits, number_pairs
from attn_tutor.torch import Translator, train, translation_loss

EDGES = np.array([1, 5, 7, 9, 11, 13, 18])  # words in the input
STEPS, WIDTH = 500, 64


def trained(attention: bool, seed: int, pairs: NumberPairs) -> Translator:
    tensors = [torch.from_numpy(x) for x in pairs]

    def draw(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = torch.randint(len(tensors[0]), (128,), generator=generator)
        return tuple(x[rows] for x in tensors)

    torch.manual_seed(seed)
    model = Translator(34, 11, WIDTH, attention=attention)
    train(model, translation_loss, draw, steps=STEPS, seed=seed)
    return model


def right(model: Translator, pairs: NumberPairs) -> np.ndarray:
    words, lengths = (torch.from_numpy(x) for x in pairs[:2])
    found, _ = model.translate(words, lengths, max_len=10)
    texts = zip(
        decode_digits(found[:, 0].numpy()), decode_digits(pairs.digits), strict=True
    )
    return np.array([x == y for x, y in texts])


def main() -> None:
    print(f"{processor()}, {torch.get_num_threads()} threads; {STEPS} steps")
    pairs = number_pairs(60_000, seed=0)
    held_out = number_pairs(2_000, seed=1, held_out=True)
    new_form = number_pairs(500, seed=2, held_out=True, unseen_form=True)
    group = np.digitize(held_out.lengths, EDGES) - 1
    names = [f"{a}-{b}" for a, b in zip(EDGES[:-1], EDGES[1:] - 1, strict=True)]
    print("seed  model            s  held out  held-out form  by words:", *names)
    for name, seed in itertools.product(("with", "without"), range(3)):
        start = perf_counter()
        model = trained(name == "with", seed, pairs)
        seconds = perf_counter() - start
        ok, formed = right(model, held_out), right(model, new_form)
        shares = " ".join(f"{ok[group == i].mean():.2f}" for i in range(len(names)))
        print(
            f"{seed}     {name:<14} {seconds:5.0f}  {ok.mean():.4f}    {formed.mean():.3f}          {shares}",
            flush=True,
        )


if __name__ == "__main__":
    main()
