"""FlexAttention under rules and biases gives what the body gives; here in its eager form, compiled on a GPU."""

import warnings

import pytest
import torch

import attn_tutor.torch as at
from attn_tutor.torch._engine import flex
from attn_tutor.torch._engine.visibility import Visibility

N, M = 37, 53
IDS = torch.arange(M) // 11
RULES = {
    "causal": at.Causal(),
    "window": at.Causal() & at.Window(7, sinks=2),
    "dilated": at.Causal() & at.Rule(lambda i, j: (i - j) % 3 == 0),
    "documents": at.Causal() & at.documents(IDS),
    "lengths": at.valid(torch.tensor([40, 0])[:, None]),
    "a length a head": at.valid(torch.tensor([[9, 50, 0, 53], [53, 1, 30, 2]])),
    "prefix": at.prefix(torch.tensor(20)),
}
BIASES = {"none": None, "slopes": at.alibi(4), "function": at.Bias(lambda i, j: -abs(i - j) / 8)}  # fmt: skip
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_flex_gives_what_the_body_gives(rule, bias, device, monkeypatch):
    if device == "cpu":  # where the compiler refuses it
        monkeypatch.setattr(flex, "_compiled", lambda: flex.flex_attention)
    torch.manual_seed(0)
    Q = torch.randn(2, 4, N, 16, device=device)
    K, V = torch.randn(2, 2, 2, M, 16, device=device)
    visibility = Visibility.read("attention", (2, 4, N, M), Q.device, rule, bias=bias)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the eager form is slow
        output = flex.flex(Q, K, V, visibility, 0.25, True)
    exact = at.attention.__wrapped__(Q, K, V, rule, bias=bias, n_kv_heads=2)
    assert torch.allclose(output, exact, atol=1e-5)


def test_it_is_chosen_for_rules_on_a_gpu_alone():
    def chosen(device, **options):
        visibility = Visibility.read("", (2, 4, N, N), torch.device("cpu"), **options)
        return flex.flexible(visibility._replace(device=torch.device(device)))

    rule, mask = at.valid(torch.tensor(3)), torch.ones(N, N, dtype=torch.bool)
    assert chosen("cuda", mask=rule) and chosen("cuda", causal=True, bias=at.alibi(4))
    assert not chosen("cpu", mask=rule)
    assert not chosen("cuda", causal=True)  # which other kernels know by name
    assert not chosen("cuda", causal=True, mask=mask)
