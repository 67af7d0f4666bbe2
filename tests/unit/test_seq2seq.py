"""The recurrent translator: padding is nowhere, steps are what training sees, and attention is additive attention."""

import numpy as np
import pytest
import torch
from torch import nn

from attn_tutor.torch import (
    Translator,
    additive_attention,
    additive_score,
    greedy_search,
    train,
    translation_loss,
)

WORDS, SYMBOLS, D, END = 11, 5, 7, 4


def model(attention=True, device="cpu"):
    torch.manual_seed(2)
    made = Translator(WORDS, SYMBOLS, D, attention=attention)
    with torch.no_grad():  # as sharp as after some training, so that mistakes show
        for parameter in made.parameters():
            parameter.mul_(2)
    return made.to(device).double()


def pairs(device="cpu", m=6, T=5):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([4, 6, 1])
    words = torch.randint(1, WORDS, (3, m), generator=generator)
    words[torch.arange(m) >= lengths[:, None]] = 0
    target = torch.randint(0, END, (3, T), generator=generator)
    target[0, 2:], target[1, 4:], target[2, 1:] = END, END, END
    return tuple(x.to(device) for x in (words, lengths, target))


either = pytest.mark.parametrize("attention", [True, False])


def test_weights_are_those_of_additive_attention(device):
    """The first context, by the package's own function; and each row of weights sums to one over real words."""
    net, (words, lengths, target) = model(device=device), pairs(device)
    _, weights = net(words, lengths, target)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    hidden = torch.arange(6, device=device) >= lengths[:, None, None]
    assert (weights[hidden.expand_as(weights)] == 0).all() and (weights >= 0).all()
    H, mask, summary = net.encoder(words, lengths)
    s = torch.tanh(net.decoder.first(summary))[:, None]
    a = net.decoder.attention
    W_q, W_k = a.q_proj.weight.mT, a.k_proj.weight.mT
    expected = additive_attention(s, H, H, W_q, W_k, a.w_v, mask)
    torch.testing.assert_close(weights[:, :1] @ H, expected)
    spread = additive_score(s, H, W_q, W_k, a.w_v).std()
    assert spread > 0.1  # else equal weights would pass


def test_without_attention_there_are_no_weights_and_one_context():
    """Whatever the annotations are, only the last states count."""
    net, (words, lengths, target) = model(attention=False), pairs()
    logits, weights = net(words, lengths, target)
    assert weights is None
    encoded = net.encoder(words, lengths)
    previous = torch.cat([net.begin(target), target[:, :-1]], 1)
    blind, _ = net.decoder(encoded._replace(H=encoded.H * torch.nan), previous)
    torch.testing.assert_close(blind, logits)


def test_the_summary_is_the_last_state_of_each_direction():
    words, lengths, _ = pairs()
    H, _, summary = model().encoder(words, lengths)
    for h, last, length in zip(H, summary, lengths, strict=True):
        torch.testing.assert_close(last[:D], h[length - 1, :D])
        torch.testing.assert_close(last[D:], h[0, D:])


@either
def test_padding_has_no_influence(attention, device):
    net, (words, lengths, target) = model(attention, device), pairs(device)
    logits, weights = net(words, lengths, target)
    other = words.clone()
    other[words == 0] = 3  # what stands in the padding
    wider = torch.cat([other, other[:, :2]], 1)  # and how much there is
    found, wide = net(wider, lengths, target)
    torch.testing.assert_close(found, logits)
    if attention:
        torch.testing.assert_close(wide[..., :6], weights)


@either
def test_a_batch_is_as_one_by_one(attention):
    net, (words, lengths, target) = model(attention), pairs()
    logits, _ = net(words, lengths, target)
    for i in range(3):
        row = slice(i, i + 1)
        alone, _ = net(words[row, : lengths[i]], lengths[row], target[row])
        torch.testing.assert_close(alone, logits[row])


@either
def test_teacher_forcing_sees_what_single_steps_see(attention):
    net, (words, lengths, target) = model(attention), pairs()
    logits, _ = net(words, lengths, target)
    encoded = net.encoder(words, lengths)
    tokens = torch.cat([net.begin(target), target], 1)[:, None]
    for t in range(target.shape[1]):
        step = net.next_log_probs(encoded, tokens[..., : t + 1])
        torch.testing.assert_close(step[:, 0], logits[:, t].log_softmax(-1))


def test_a_symbol_is_seen_only_after_it(device):
    net, (words, lengths, target) = model(device=device), pairs(device)
    logits, _ = net(words, lengths, target)
    for t in range(target.shape[1]):
        other = target.clone()
        other[:, t] = (other[:, t] + 1) % SYMBOLS
        changed = (net(words, lengths, other)[0] - logits).abs().amax((0, 2)) > 1e-9
        assert changed.tolist() == [at > t for at in range(target.shape[1])]


@either
def test_translate_is_the_search_over_the_model(attention, device):
    net, (words, lengths, _) = model(attention, device), pairs(device)
    tokens, scores = net.translate(words, lengths, 6)
    encoded = net.encoder(words, lengths)
    found, expected = greedy_search(
        lambda rows: net.next_log_probs(encoded, rows).detach(),
        net.begin(words),
        END,
        6,
    )
    assert tokens[:, 0].tolist() == found.tolist() and not scores.requires_grad
    torch.testing.assert_close(scores[:, 0], expected)
    many, _ = net.translate(words, lengths, 6, beam_width=4)
    for row, one in zip(range(3), lengths.tolist(), strict=True):
        alone, _ = net.translate(
            words[row : row + 1, :one], lengths[row : row + 1], 6, beam_width=4
        )
        assert many[row, :, : alone.shape[-1]].tolist() == alone[0].tolist()


@either
def test_steps_are_those_of_the_equations(attention):
    """One sentence, one symbol at a time, with the numbers of the model and none of its code."""
    net, each = model(attention), pairs()
    words, lengths, target = (x[:1] for x in each)
    logits, _ = net(words, lengths, target)
    parts, a = net.decoder, net.decoder.attention
    (H,), _, (c,) = net.encoder(words[:, : lengths[0]], lengths)
    s = (parts.first.weight @ c + parts.first.bias).tanh()
    for before, found in zip([END, *target[0].tolist()], logits[0], strict=False):
        if attention:
            e = torch.stack(
                [(a.q_proj.weight @ s + a.k_proj.weight @ h).tanh() @ a.w_v for h in H]
            )
            c = sum(e.exp()[j] / e.exp().sum() * h for j, h in enumerate(H))
        s = parts.cell(torch.cat([parts.embedding.weight[before], c]), s)
        expected = parts.output.weight @ torch.cat([s, c]) + parts.output.bias
        torch.testing.assert_close(found, expected)


@either
def test_gradient_reaches_every_parameter(attention):
    net = model(attention)
    translation_loss(net, pairs()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 1e-9, name


def test_loss_is_the_mean_over_symbols_up_to_the_first_end(device):
    net, (words, lengths, target) = model(device=device), pairs(device)
    logits, _ = net(words, lengths, target)
    each = []
    for row, symbols in zip(logits.log_softmax(-1), target.tolist(), strict=True):
        stop = symbols.index(END) + 1
        each += [-row[t, symbols[t]].item() for t in range(stop)]
    assert len(each) == 3 + 5 + 2
    loss = translation_loss(net, (words, lengths, target))
    assert loss.item() == pytest.approx(np.mean(each))


def test_a_sentence_without_an_end_counts_to_its_last_symbol():
    net, (words, lengths, target) = model(), pairs()
    target = target.clamp(max=END - 1)
    logits, _ = net(words, lengths, target)
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    torch.testing.assert_close(
        translation_loss(net, (words, lengths, target)), expected
    )


@pytest.mark.slow
def test_it_learns_to_reverse_in_both_ways(device):
    """A toy: the words in reverse; enough for the loss to fall to a tenth, which blind guesses cannot."""

    def draw(generator):
        words = torch.randint(1, 4, (32, 3), generator=generator)
        end = torch.full((32, 1), 3)
        return words, torch.full((32,), 3), torch.cat([words.flip(1) - 1, end], 1)

    for attention in (True, False):
        torch.manual_seed(0)
        net = Translator(4, 4, 16, attention=attention).to(device)
        history = train(net, translation_loss, draw, steps=150, lr=0.02, every=15)
        assert history.losses[-1] < 0.1 * history.losses[0]


@pytest.mark.parametrize("name", ["n_words", "n_symbols", "d"])
def test_sizes(name):
    sizes = {"n_words": 3, "n_symbols": 3, "d": 3} | {name: 0}
    with pytest.raises(ValueError, match=f"Translator: {name} must be 1 or more"):
        Translator(**sizes)
