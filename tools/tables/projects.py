"""Measure the projects of *Where next*, as a reader can build them: the page's answers say what this prints.

python tools/tables/projects.py                  all, in about an hour on one core
python tools/tables/projects.py theory           one of them: windows, images, speech, heads, rings, theory

All that is trained is trained by ``at.train``: AdamW, a warm-up, a cosine fall of the rate, clipped gradients.
"""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product

import torch
from small_transformer import alphabet, draw, loss, windows
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import attn_tutor.torch as at

SEEDS = range(6)


def say(name: object, shares: Iterable[float]) -> None:
    print(f"{name!s:28}", *(f"{x:.3f}" for x in shares), flush=True)


# Long contexts, and what a trained model does: the model of chapter 9.


@torch.no_grad()
def held_out(model: at.LanguageModel) -> float:
    return loss(model, windows).item()


def prose(seed: int, window: int | None, steps: int = 800) -> at.LanguageModel:
    torch.manual_seed(seed)
    model = at.LanguageModel(len(alphabet), 64, 4, 2, window=window)
    at.train(model, loss, draw, steps=steps, lr=6e-3, seed=seed, score=held_out)
    return model


def long_contexts() -> None:
    for window in (2, 3, 4, 8, None):
        say(f"window {window}", (held_out(prose(seed, window)) for seed in SEEDS))


@torch.no_grad()
def heads() -> None:
    """Of each head: the share of a row that moves, the cost without it, and the length of what it adds."""
    for seed in SEEDS:
        with torch.enable_grad():
            model = prose(seed, None)
        found, whole, X = [], held_out(model), model.embedding(windows[:, :-1])
        for i, block in enumerate(model.blocks):
            assert isinstance(block, at.Block)
            part = block.attention
            Z = block.norm_1(X)
            Q, K, V = (
                p(Z).unflatten(-1, (4, 16)).swapaxes(-3, -2)
                for p in (part.q_proj, part.k_proj, part.v_proj)
            )
            A = at.attention_weights(at.rotary(Q), at.rotary(K), at.causal_mask(64))
            sent = V @ part.out_proj.weight.T.unflatten(0, (4, 16))  # (b, h, n, d)
            heard = A * sent.norm(dim=-1)[..., None, :]
            heard /= heard.sum(-1, keepdim=True)
            moved = (A - heard).abs().sum(-1).mean((0, 2)) / 2
            added = (A @ sent).norm(dim=-1).mean((0, 2))
            for head in range(4):
                rows = part.out_proj.weight[:, 16 * head : 16 * head + 16]
                kept = rows.clone()
                rows.zero_()
                cost = held_out(model) - whole
                rows.copy_(kept)
                found.append([moved[head].item(), cost, added[head].item()])
                say(f"seed {seed}, head {head} of block {i}", found[-1])
            X = block(X)
        for name, some in (("both", found), ("0", found[:4]), ("1", found[4:])):
            both = torch.corrcoef(torch.tensor(some).T)[1, [0, 2]]
            say(f"with the cost, block {name}", both.tolist())


# Images

DIGITS = (
    "111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001",
    "111100111001111", "111100111101111", "111001001001001", "111101111101111", "111101111001111",
)  # fmt: skip
GLYPHS = torch.tensor([[float(c) for c in digit] for digit in DIGITS]).view(10, 5, 3)


def draw_images(generator: torch.Generator, count: int = 64) -> list[torch.Tensor]:
    """Patches, (count, 16, 4), and which digit they show."""
    digit = torch.randint(10, (count,), generator=generator)
    top = torch.randint(4, (count, 1, 1), generator=generator)
    left = torch.randint(6, (count, 1, 1), generator=generator)
    images = 0.3 * torch.randn(count, 8, 8, generator=generator)
    which = torch.arange(count)[:, None, None]
    images[which, top + torch.arange(5)[:, None], left + torch.arange(3)] += GLYPHS[digit]  # fmt: skip
    patches = images.unflatten(1, (4, 2)).unflatten(3, (4, 2)).swapaxes(2, 3)
    return [patches.flatten(3).flatten(1, 2), digit]


class VisionTransformer(nn.Module):
    def __init__(self, positions: bool, order: torch.Tensor) -> None:
        super().__init__()
        self.order = order
        self.embed = nn.Linear(4, 32)
        start = 0.02 * torch.randn(16, 32) if positions else torch.zeros(16, 32)
        self.positions = nn.Parameter(start, requires_grad=positions)
        self.blocks = nn.Sequential(at.Block(32, 4), at.Block(32, 4))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        X = self.embed(patches[:, self.order]) + self.positions  # (b, 16, 32)
        return self.head(self.norm(self.blocks(X)).mean(1))


def image_loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def images() -> None:
    plain = torch.arange(16)
    shuffled = [torch.randperm(16, generator=torch.Generator().manual_seed(seed)) for seed in range(20)]  # fmt: skip
    patches, digit = draw_images(torch.Generator().manual_seed(99), 4000)
    for seed in SEEDS:
        for name, positions, order in (
            ("with positions", True, plain),
            ("with positions, permuted", True, shuffled[seed]),
            ("without positions", False, plain),
        ):
            torch.manual_seed(seed)
            model = VisionTransformer(positions, order)
            at.train(model, image_loss, draw_images, steps=3000, seed=seed)
            with torch.no_grad():
                answers = model(patches).argmax(-1)
                say(name, [(answers == digit).double().mean().item()])
                if order is plain:  # permuted in the test alone
                    others = [model(patches[:, p]).argmax(-1) for p in shuffled]
                    right = [(x == digit).double().mean().item() for x in others]
                    say("  permuted in the test alone", [min(right), max(right)])
                    say("  other answers", [(others[0] != answers).double().mean()])


# Speech

END = 3  # after the letters a, b, c; also what the decoder is fed first


def spoken(generator: torch.Generator, letters: torch.Tensor) -> list[torch.Tensor]:
    """Words of that many letters: frames, (b, m, 3), which of them are no padding, and what to write, (b, T + 1)."""
    b, longest = len(letters), int(letters.max())
    word = torch.randint(3, (b, longest), generator=generator)
    word[torch.arange(longest) >= letters[:, None]] = END
    lasts = torch.randint(2, 5, (b, longest), generator=generator) * (word != END)
    ends = lasts.cumsum(1)  # (b, T), where each letter is over
    m = torch.arange(int(ends[:, -1].max()))
    place = (m[None, :, None] >= ends[:, None]).sum(-1)  # (b, m), letter of each frame
    real = m < ends[:, -1:]
    sound = one_hot(word.gather(1, place.clamp(max=longest - 1)), 4)[..., :3].float()
    sound[(m[None, :, None] == ends[:, None] - 1).any(-1)] *= 0.5
    sound += 0.1 * torch.randn(sound.shape, generator=generator)
    text = torch.cat([word, torch.full((b, 1), END)], 1)
    return [sound * real[..., None], real, text]


class Speller(nn.Module):
    """Read both ways by a GRU; written by another, from zeros, that is fed the letter before and the context."""

    def __init__(self, location: bool, d: int = 32) -> None:
        super().__init__()
        self.reader = nn.GRU(3, d, bidirectional=True, batch_first=True)
        self.query, self.key = nn.Linear(d, d), nn.Linear(2 * d, d, bias=False)
        self.score = nn.Linear(d, 1, bias=False)
        self.filters = nn.Conv1d(1, 8, 7, padding=3, bias=False) if location else None
        self.last = nn.Linear(8, d, bias=False)
        self.cell, self.output = nn.GRUCell(4 + 2 * d, d), nn.Linear(3 * d, 4)

    def forward(
        self, sound: torch.Tensor, real: torch.Tensor, text: torch.Tensor
    ) -> torch.Tensor:
        packed = pack_padded_sequence(
            sound, real.sum(1), batch_first=True, enforce_sorted=False
        )
        H, _ = pad_packed_sequence(self.reader(packed)[0], batch_first=True)
        K, state, logits = self.key(H), H.new_zeros(len(H), self.cell.hidden_size), []
        weights = one_hot(torch.zeros(len(H), dtype=torch.int64), H.shape[1]).float()
        before = torch.cat([torch.full((len(H), 1), END), text[:, :-1]], 1)
        for letter in one_hot(before, 4).float().unbind(1):
            inside = self.query(state)[:, None] + K  # (b, m, d)
            if self.filters is not None:
                inside = inside + self.last(self.filters(weights[:, None]).mT)
            scores = self.score(inside.tanh())[..., 0]
            weights = at.masked_softmax(scores, real)
            context = (weights[:, None] @ H)[:, 0]
            state = self.cell(torch.cat([letter, context], 1), state)
            logits.append(self.output(torch.cat([state, context], 1)))
        return torch.stack(logits, 1)


def draw_words(generator: torch.Generator) -> list[torch.Tensor]:
    return spoken(generator, torch.randint(3, 9, (32,), generator=generator))


def spelling_loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    text = batch[2]
    wanted = text.where((text == END).cumsum(1) < 2, -100)  # one end, then nothing
    return cross_entropy(model(*batch).mT, wanted)


def speech() -> None:
    """Share of the letters right in words of 8, 16 and 32."""
    for rate, location in product((0.003, 0.01), (False, True)):
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = Speller(location)
            at.train(model, spelling_loss, draw_words, steps=1200, lr=rate, seed=seed)
            shares = []
            for n in (8, 16, 32):
                test = spoken(torch.Generator().manual_seed(5), torch.full((500,), n))
                with torch.no_grad():
                    right = model(*test).argmax(-1) == test[2]
                shares.append(right[:, :n].double().mean().item())
            say(f"rate {rate}, last row {location}", shares)


# Speed and memory: the task and the model of chapter 4.


def rings(people: int, count: int, generator: torch.Generator) -> list[torch.Tensor]:
    names = torch.rand(count, people, generator=generator).argsort(-1)
    ring = torch.rand(count, people, generator=generator).argsort(-1)
    asked = torch.empty_like(ring).scatter_(1, ring, ring.roll(-1, 1))
    digits = torch.randint(10, (count, people), generator=generator)
    return [names, names.gather(1, asked), digits, digits.gather(1, asked)]


class Reader(nn.Module):
    def __init__(self, people: int, d: int, attend: Callable[..., torch.Tensor]):
        super().__init__()
        self.attend = attend
        self.name, self.asks = nn.Embedding(people, d), nn.Embedding(people, d)
        self.digit = nn.Embedding(10, d)
        for table in (self.name, self.asks, self.digit):
            nn.init.normal_(table.weight, std=0.1)
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.read = nn.Linear(d, 10)

    def forward(
        self, names: torch.Tensor, asks: torch.Tensor, digits: torch.Tensor
    ) -> torch.Tensor:
        X = self.name(names) + self.asks(asks) + self.digit(digits)
        return self.read(self.attend(self.q(X), self.k(X), self.v(X)))


def ring_loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model(*batch[:3]).mT, batch[3])


def speed_and_memory() -> None:
    for attend, people, d in (
        *((at.attention, people, 16) for people in (6, 12, 24)),
        *((at.linear_attention, people, 16) for people in (6, 12, 24)),
        *((at.linear_attention, 24, d) for d in (20, 24, 32)),
    ):
        shares = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = Reader(people, d, attend)
            draw_rings = partial(rings, people, 64)
            at.train(model, ring_loss, draw_rings, steps=1500, lr=0.01, seed=seed)
            *test, right = rings(people, 1000, torch.Generator().manual_seed(10**6))
            with torch.no_grad():
                shares.append((model(*test).argmax(-1) == right).double().mean().item())
        say(f"{attend.__name__} {people}, width {d}", shares)


# Theory


def theory() -> None:
    """Distance from the tokens' mean, as a share of their length, and both beside the start: least, median and most."""
    for residual in (False, True):
        found = torch.empty(3, 100, 31, dtype=torch.float64)
        for seed in range(100):
            generator = torch.Generator().manual_seed(seed)
            X = torch.randn(16, 32, generator=generator, dtype=torch.float64)
            for layer in range(31):
                apart, whole = (X - X.mean(0)).norm(), X.norm()
                found[:, seed, layer] = torch.stack([apart / whole, apart, whole])
                W = torch.randn(3, 32, 32, generator=generator, dtype=X.dtype) / 32**0.5
                X = residual * X + at.self_attention(X, *W)
        found[1:] /= found[1:, :, :1].clone()
        for layer in (0, 1, 2, 3, 5, 10, 20, 30):
            name = f"residual {residual}, after {layer}"
            spread = found[:, :, layer].quantile(
                torch.tensor([0, 0.5, 1.0]).double(), 1
            )
            print(f"{name:28}", *(f"{x:.1e}" for x in spread.T.flatten()), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    projects: dict[str, Callable[[], None]] = {
        "windows": long_contexts,
        "images": images,
        "speech": speech,
        "heads": heads,
        "rings": speed_and_memory,
        "theory": theory,
    }
    for name in sys.argv[1:] or projects:
        projects[name]()


if __name__ == "__main__":
    main()
