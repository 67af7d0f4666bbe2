"""The training loop: what it gives is the best it saw, the same twice, and the same after a stop; files are checked."""

import io
import itertools
import re
import sys

import pytest
import torch
from torch import nn

import attn_tutor.torch as at
from attn_tutor.torch import History, load_weights, save_weights, train
from attn_tutor.torch.models.training import rate

STEPS, EVERY = 23, 5


def net(d=3, device="cpu"):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(d, 7), nn.Dropout(0.5), nn.Linear(7, 1)).to(device)


def loss(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def draw(generator):
    x = torch.randn(11, 3, generator=generator)
    return x, x.sum(1, keepdim=True)


def run(model, draw=draw, **options):
    given = {"steps": STEPS, "every": EVERY} | options
    return train(model, loss, draw, **given)


def weights(model):
    return torch.cat([x.detach().flatten() for x in model.state_dict().values()])


def interrupting(after):
    """Batches as always, until somebody stops it."""
    left = iter(range(after))

    def drawn(generator):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return draw(generator)

    return drawn


def far(model):
    """A score that only the weights decide."""
    return (model[0].weight.norm() - 2.5).abs().item()


def test_it_learns_on_every_device(device):
    model = nn.Linear(3, 1).to(device)
    history = run(model, steps=300, lr=0.1)
    assert history.losses[-1] < 1e-3 < history.losses[0]
    assert next(model.parameters()).device.type == device and not model.training


def test_the_same_twice_and_another_with_another_seed(device):
    one, same, other = (net(device=device) for _ in range(3))
    first = run(one)
    torch.rand(5)  # whatever was drawn before
    second = run(same)
    run(other, seed=1)
    assert torch.equal(weights(one), weights(same)) and first == second
    assert not torch.equal(weights(one), weights(other))


def test_the_global_random_state_stays():
    model = net()
    before = torch.get_rng_state()
    run(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_history_holds_mean_losses_at_the_checks():
    """With a learning rate of (almost) nothing each loss is that of the model at the start."""
    model = nn.Linear(3, 1)
    history = run(model, lr=1e-30, steps=12)
    generator = torch.Generator().manual_seed(0)
    each = [loss(model, draw(generator)).item() for _ in range(12)]
    expected = [sum(each[:5]) / 5, sum(each[5:10]) / 5, sum(each[10:]) / 2]
    assert history.steps == [5, 10, 12] and history.scores == []
    assert history.losses == pytest.approx(expected, rel=1e-6)


def test_learning_rate_rises_in_a_line_and_falls_in_half_a_cosine():
    rates = [rate(step, 100) for step in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1])
    assert rates[5:] == sorted(rates[5:], reverse=True) and rates[5] < 1
    assert rates[52] == pytest.approx(0.5, abs=0.01)  # half way down
    assert rates[28] == pytest.approx((1 + 0.5**0.5) / 2, abs=0.01)
    assert 0 < rates[-1] < 0.001
    assert rate(0, 1) == 1


def test_one_huge_gradient_does_not_stop_the_learning():
    """AdamW divides by the size of past gradients, so that one that is not clipped stills all steps after it."""
    first = iter([1e6])

    def drawn(generator):
        x, y = draw(generator)
        return x, y * next(first, 1)

    assert run(nn.Linear(3, 1), drawn, steps=300, lr=0.1).losses[-1] < 0.01


def test_best_weights_are_kept():
    scores = iter([4.0, 2.0, 3.0, 2.0, 5.0])
    seen = []

    def score(model):
        assert not model.training and not torch.is_grad_enabled()
        seen.append(weights(model))
        return next(scores)

    model = net()
    history = run(model, score=score)
    assert history.steps == [5, 10, 15, 20, 23]
    assert history.scores == [4.0, 2.0, 3.0, 2.0, 5.0] and history.best == 10
    assert torch.equal(weights(model), seen[1])
    assert not torch.equal(weights(model), seen[4])


def test_without_a_score_the_last_are_kept():
    model = net()
    history = run(model)
    assert history.best == 23 and not history.stopped
    again = net()
    assert run(again, every=1).best == 23
    assert torch.equal(weights(model), weights(again))


def test_interrupt_keeps_the_best_and_says_so(capsys):
    model, whole = net(), net()
    scores = iter([4.0, 2.0, 3.0])
    history = run(model, interrupting(17), score=lambda _: next(scores))
    assert history == History([5, 10, 15], history.losses, [4.0, 2.0, 3.0], 10, True)
    assert capsys.readouterr().out == (
        "Interrupted after step 17 of 23. The model has the weights of step 10.\n"
    )
    seen = []
    run(whole, score=lambda m: seen.append(weights(m)) or 0.0)
    assert torch.equal(weights(model), seen[1]) and not model.training


def test_interrupt_while_scoring_leaves_a_history_of_whole_rows():
    def score(_):
        raise KeyboardInterrupt

    history = run(net(), score=score)
    assert history == History(stopped=True)


def near(model):
    """With one of the two the first weights are the best, with the other the last."""
    return -far(model)


@pytest.mark.parametrize("score", [None, far, near])
def test_resumes_bit_for_bit(tmp_path, score, device):
    """Weights, history and best weights of a run in three parts are those of one that never stopped."""
    whole, parts = net(device=device), net(device=device)
    expected = run(whole, score=score)
    options = {"score": score, "checkpoint": tmp_path / "run.pt"}
    assert run(parts, interrupting(8), **options).steps == [5]
    assert run(net(device=device), interrupting(6), **options).steps == [5, 10]
    parts = net(device=device)
    assert run(parts, **options) == expected
    assert torch.equal(weights(parts), weights(whole))
    done = net(device=device)
    assert run(done, interrupting(0), **options) == expected
    assert torch.equal(weights(done), weights(whole))
    assert [x.name for x in tmp_path.iterdir()] == ["run.pt"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"steps": 24}, "steps = 23 there and 24 here"),
        ({"lr": 0.1}, "lr = 0.003 there and 0.1 here"),
        ({"seed": 3}, "seed = 0 there and 3 here"),
        ({"every": 4}, "every = 5 there and 4 here"),
        ({"score": far}, "score = False there and True here"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, options, found):
    path = tmp_path / "run.pt"
    run(net(), checkpoint=path)
    before, model = path.read_bytes(), net()
    kept = weights(model)
    with pytest.raises(
        ValueError, match=re.escape(f"{path} is of another run: {found}")
    ):
        run(model, checkpoint=path, **options)
    assert path.read_bytes() == before and torch.equal(weights(model), kept)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    run(net(), checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match="its parameters have other names or shapes"):
        run(nn.Linear(3, 1), checkpoint=tmp_path / "run.pt")


def test_the_file_of_a_whole_run_keeps_what_a_reader_needs(tmp_path):
    history = run(net(), checkpoint=tmp_path / "run.pt")
    kept = torch.load(tmp_path / "run.pt")
    assert set(kept) == {"run", "step", "history", "best"}
    assert "device" not in kept["run"]
    assert history == History(**kept["history"])


def test_weights_are_no_checkpoint(tmp_path):
    save_weights(net(), tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="is no checkpoint; choose another name"):
        run(net(), checkpoint=tmp_path / "weights.pt")


def test_a_loss_that_explodes_stops_with_advice():
    def drawn(generator):
        x, y = draw(generator)
        return x * (torch.inf if next(count) > 7 else 1), y

    count, model = iter(range(99)), net()
    with pytest.raises(FloatingPointError, match="after 10 steps the loss is nan"):
        run(model, drawn)
    assert weights(model).isfinite().all()
    with pytest.raises(FloatingPointError, match="and the score nan"):
        run(model, score=lambda _: float("nan"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "train: steps must be 1 or more, got 0"),
        ({"every": 0}, "train: every must be 1 or more, got 0"),
        ({"lr": 0.0}, "train: lr must be above 0 and finite, got 0.0"),
    ],
)
def test_sizes(options, message):
    with pytest.raises(ValueError, match=message):
        run(net(), **options)


class Screen(io.StringIO):
    def __init__(self, tty):
        super().__init__()
        self.tty = tty

    def isatty(self):
        return self.tty


@pytest.mark.parametrize(
    ("tty", "progress", "quiet", "shown"),
    [
        (True, True, None, True),
        (False, True, None, False),
        (True, False, None, False),
        (True, True, "1", False),
    ],
)
def test_progress_is_for_who_watches(monkeypatch, tty, progress, quiet, shown):
    monkeypatch.delenv("ATTN_TUTOR_QUIET", raising=False)
    if quiet:
        monkeypatch.setenv("ATTN_TUTOR_QUIET", quiet)
    monkeypatch.setattr(sys, "stderr", Screen(tty))
    run(net(), progress=progress)
    text = sys.stderr.getvalue()
    assert ("/23" in text) is shown
    if shown:  # and is gone at the end
        assert not text.rpartition("\r")[0].rpartition("\r")[2].strip()
        assert text.endswith("\r")
    else:
        assert text == ""


# Files of weights.


def test_weights_come_back(tmp_path, device):
    one, other = net(device=device), nn.Sequential(*net().children()).to(device)
    nn.init.ones_(other[0].weight)
    save_weights(one, tmp_path / "weights.pt")
    load_weights(other, tmp_path / "weights.pt")
    assert torch.equal(weights(one), weights(other))
    assert next(other.parameters()).device.type == device
    assert [x.name for x in tmp_path.iterdir()] == ["weights.pt"]


def test_weights_keep_the_dtype_of_the_model(tmp_path):
    save_weights(net(), tmp_path / "weights.pt")
    model = net().double()
    load_weights(model, tmp_path / "weights.pt")
    assert model[0].weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (net(5), "0.weight has shape (7, 3) there and (7, 5) here."),
        (
            nn.Linear(3, 1),
            "it lacks weight; it lacks bias; the model has no 0.weight; and 3 more.",
        ),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path, other, found):
    path, before = tmp_path / "weights.pt", weights(other)
    save_weights(net(), path)
    message = f"{path} holds the weights of another model: {found} Make the model"
    with pytest.raises(ValueError, match=re.escape(message)):
        load_weights(other, path)
    assert torch.equal(weights(other), before)


def test_no_damaged_file_is_taken(tmp_path):
    """Cut short anywhere, or with any one byte changed, it is refused or still right."""
    path, model = tmp_path / "weights.pt", nn.Linear(2, 1)
    save_weights(model, path)
    whole, right = path.read_bytes(), weights(model)
    cuts = [whole[:size] for size in range(0, len(whole), 7)]
    flips = [
        whole[:i] + bytes([whole[i] ^ 0x41]) + whole[i + 1 :]
        for i in range(0, len(whole), 3)
    ]
    refused = 0
    for content in [*cuts, *flips]:
        path.write_bytes(content)
        other = nn.Linear(2, 1)
        before = weights(other)
        try:
            load_weights(other, path)
        except ValueError as error:
            refused += 1
            assert "Copy it again, or delete it" in str(error)
            assert torch.equal(weights(other), before)
        else:
            assert torch.equal(weights(other), right)
            assert content not in cuts
    assert refused > len(whole) / 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1.0], "holds a list, not a dictionary"),
        ({"weight": 1.0}, "holds no weights; save_weights writes such files"),
        ({"model": nn.Linear(1, 1)}, "was not written by this package"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=message):
        load_weights(nn.Linear(1, 1), tmp_path / "other.pt")


def test_no_file_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_weights(nn.Linear(1, 1), tmp_path / "none.pt")


def test_the_learning_rate_rises_and_falls():
    """With a gradient of 1 in every step, AdamW moves by the learning rate, less a little decay."""
    model, seen = nn.Linear(1, 1, bias=False), []

    def loss(model, batch):
        seen.append(model.weight.item())
        return model.weight.sum()

    train(model, loss, lambda _: torch.zeros(1), steps=40, lr=0.1, progress=False)
    moves = [before - after for before, after in itertools.pairwise(seen)]
    assert moves[:2] == pytest.approx([0.05, 0.1], rel=0.05)  # up in two steps
    assert moves[20] == pytest.approx(0.052, rel=0.05)  # half of the cosine
    assert 0 < moves[-1] < 0.001


def test_batches_may_be_dictionaries(device):
    def drawn(generator):
        x, y = draw(generator)
        return {"pair": [x, y], "name": "a batch"}

    def loss(model, batch):
        assert batch["name"] == "a batch"
        x, y = batch["pair"]
        assert x.device.type == device
        return (model(x) - y).square().mean()

    one, other = net(device=device), net(device=device)
    train(one, loss, drawn, steps=3)
    run(other, steps=3)
    assert torch.equal(weights(one), weights(other))


def test_what_cannot_be_trained(tmp_path):
    for model in (nn.ReLU(), nn.Linear(3, 1).requires_grad_(False)):
        with pytest.raises(ValueError, match="^train: the model has no parameters to"):
            run(model)
    with pytest.raises(FileNotFoundError, match="^train: there is no folder .*none; m"):
        run(net(), lambda _: pytest.fail("trained"), checkpoint=tmp_path / "none/x.pt")
    with pytest.raises(FileNotFoundError, match="^save_weights: there is no folder"):
        save_weights(net(), tmp_path / "none" / "weights.pt")


@pytest.mark.parametrize(
    "part", ["step", "history", "best", "model", "optimizer", "generators"]
)
@pytest.mark.parametrize("garbled", [True, False])
def test_a_checkpoint_that_lacks_something(tmp_path, part, garbled):
    path, model = tmp_path / "run.pt", net()
    run(net(), interrupting(17), checkpoint=path)  # what a finished run keeps is less
    content = torch.load(path)
    if garbled:
        content[part] = {"a": 1}
    else:
        del content[part]
    torch.save(content, path)
    before = weights(model)
    with pytest.raises(ValueError, match="is incomplete or garbled .*; delete it to"):
        run(model, checkpoint=path)
    assert torch.equal(weights(model), before)


def test_weights_of_a_model_made_otherwise(tmp_path):
    torch.manual_seed(3)
    path, sizes = tmp_path / "weights.pt", (11, 8)
    at.save_weights(at.LanguageModel(*sizes, n_heads=2, n_layers=1), path)
    at.load_weights(at.LanguageModel(*sizes, n_heads=2, n_layers=1, dropout=0.5), path)
    for n_heads, positions in ((4, "rotary"), (2, "alibi"), (2, None)):
        other = at.LanguageModel(*sizes, n_heads, n_layers=1, positions=positions)
        before = other.head.weight.clone()
        with pytest.raises(ValueError, match="was made with"):
            at.load_weights(other, path)
        assert torch.equal(other.head.weight, before)
