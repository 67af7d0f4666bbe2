"""Train chapter 9's model in the kernel of its page, on the book's prose or on the reader's text, and tell the page how
it goes."""

import torch
from torch.nn.functional import cross_entropy

from attn_tutor.data import load_book
from attn_tutor.torch.models.language_model import LanguageModel
from attn_tutor.torch.models.training import State

STEP = "application/vnd.attn-tutor.training+json"
LENGTH, ROWS, RATE, STEPS = 64, 16, 6e-3, 800  # the chapter's
EVERY, SAMPLE = 10, 100  # steps from one loss to the next, and from one sample
LEAST = 2000  # characters to learn from


class Training:
    """A run that can be stopped, and goes on from where it was."""

    def __init__(self, text: str, seed: int) -> None:
        text = text or load_book()
        if len(text) < LEAST:
            raise ValueError(
                f"{len(text)} characters are too few to learn from: paste {LEAST:,} or more"
            )
        self.alphabet = sorted(set(text))
        place = {letter: i for i, letter in enumerate(self.alphabet)}
        self.ids = torch.tensor([place[letter] for letter in text])
        torch.manual_seed(seed)
        self.model = LanguageModel(len(place), d_model=64, n_heads=4, n_layers=2)
        self.state = State(self.model, torch.device("cpu"), {"steps": STEPS})
        self.generator = torch.Generator().manual_seed(seed)
        # Step and loss, all of them: the page may have been loaded anew.
        self.losses: list[tuple[int, float]] = []

    def run(self) -> None:
        """Train until the end, or until the page's Stop interrupts it."""
        state, losses = self.state, list[float]()
        if self.losses:
            self.tell()
        try:
            while state.step < STEPS:
                before = state.total.item()
                state.learn(next_letter, self.draw(), RATE)
                losses.append(state.total.item() - before)
                if state.step % EVERY == 0:
                    mean = round(sum(losses) / len(losses), 3)
                    self.losses.append((state.step, mean))
                    losses = []
                    self.tell(None if state.step % SAMPLE else self.sample())
        except KeyboardInterrupt:
            pass

    def draw(self) -> torch.Tensor:
        last = len(self.ids) - LENGTH
        starts = torch.randint(last, (ROWS, 1), generator=self.generator)
        return self.ids[starts + torch.arange(LENGTH + 1)]  # (rows, LENGTH + 1)

    def tell(self, sample: str | None = None) -> None:
        from IPython.display import display

        found = {"of": STEPS, "losses": self.losses, "sample": sample}
        display({STEP: found, "text/plain": ""}, raw=True)

    def sample(self) -> str:
        drawn = self.model.eval().generate(self.ids[:8], 120, temperature=0.8)
        return "".join(self.alphabet[i] for i in drawn)


def next_letter(model: LanguageModel, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch[:, :-1])  # (rows, LENGTH, letters)
    return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
