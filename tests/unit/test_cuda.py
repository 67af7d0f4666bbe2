"""What only a GPU can show: memory at 65,536 tokens, autocast, compiled models. `make gpu` runs it."""

import pytest
import torch

import attn_tutor.torch as at

DEVICE = "cuda"
N, WIDTH, HIDDEN = 65_536, 64, 16
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device; `make gpu` is for machines with one"
)  # fmt: skip


def additive(Q, K, V):
    W_q, W_k, w_v = (torch.randn(*x).to(Q) / 8 for x in [(WIDTH, HIDDEN)] * 2 + [(HIDDEN,)])  # fmt: skip
    return at.additive_attention(Q, K, V, W_q, W_k, w_v)


def padded(Q, K, V):
    return at.attention(Q, K, V, at.padding_mask(torch.tensor([N // 3]).to(Q.device), N))  # fmt: skip


CALLS = {
    "attention": at.attention,
    "causal": lambda *Q: at.attention(*Q, causal=True),
    "padded": padded,
    "Gaussian": lambda *Q: at.gaussian_attention(*Q, bandwidth=4.0),
    "additive": additive,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_memory_at_64k_tokens(call):
    """Forward and backward in far less than one byte for each of the 4,294,967,296 scores."""
    arrays = torch.randn(3, 1, N, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    Q, K, V = (x.requires_grad_() for x in arrays.unbind())
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call(Q, K, V).sum().backward()
    peak = torch.cuda.max_memory_allocated() - before
    assert 4 * Q.nbytes <= peak < N**2 / 4  # an output and three gradients at least
    assert all(x.grad.isfinite().all() for x in (Q, K, V))


MODELS = {
    "layer": lambda: at.MultiHeadAttention(64, 4, causal=True, n_kv_heads=2),
    "block": lambda: at.Block(64, 4, causal=True, positions="rotary"),
    "model": lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), at.PositionalEncoding(64), at.Block(64, 4)),
}  # fmt: skip


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request):
    torch.manual_seed(0)
    return request.param().to(DEVICE).eval()


def tokens():
    return torch.randn(3, 37, 64, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def test_autocast(model, close):
    expected = model(tokens())
    with torch.autocast(DEVICE, torch.bfloat16):
        found = model(tokens())
    close(found.float(), expected, "bfloat16")
    found.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.filterwarnings("default")  # of torch's own compiler
def test_compiled(model, close):
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    close(compiled(tokens()), model(tokens()))
    compiled(tokens()).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
