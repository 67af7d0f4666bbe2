"""Rates by a checkpoint's settings: the numbers of transformers, for published settings and for a product of others."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at

pytestmark = pytest.mark.slow

LENGTHS = [None, 100, 4096, 4097, 9000, 200_000]

# As their config.json has them, but for the lists of Phi, which are shorter here.
PUBLISHED = {
    "Llama 3.1 8B": {
        "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "Qwen2.5 with YaRN": {
        "hidden_size": 3584, "num_attention_heads": 28, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
    },
    "DeepSeek-V3": {
        "hidden_size": 640, "num_attention_heads": 10, "max_position_embeddings": 163840, "rope_theta": 10000,
        "rope_scaling": {
            "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096, "type": "yarn",
        },
    },
    "gpt-oss": {
        "hidden_size": 2880, "num_attention_heads": 64, "head_dim": 64, "max_position_embeddings": 131072,
        "rope_theta": 150000,
        "rope_scaling": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False,
        },
    },
    "Phi-3 128k": {
        "hidden_size": 96, "num_attention_heads": 4, "max_position_embeddings": 131072, "rope_theta": 10000.0,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "long_factor": [1.08, 1.11, 1.14, 1.34, 1.59, 1.6, 1.62, 2.65, 10.4, 26.3, 52.1, 64.9],
            "short_factor": [1.0, 1.02, 1.03, 1.05, 1.07, 1.1, 1.2, 1.3, 1.9, 2.4, 2.7, 2.8], "type": "longrope",
        },
    },
    "LongChat": {
        "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096, "rope_theta": 10000.0,
        "rope_scaling": {"factor": 8.0, "type": "linear"},
    },
    "Yarn-Llama with dynamic scaling": {
        "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096, "rope_theta": 10000.0,
        "rope_scaling": {"factor": 2.0, "type": "dynamic"},
    },
    "Qwen3, as it is": {
        "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "max_position_embeddings": 40960,
        "rope_theta": 1000000, "rope_scaling": None,
    },
}  # fmt: skip  # tables of settings

RECIPES = {
    "default": {},
    "linear": {"factor": [1.0, 4.0, 2.5]},
    "dynamic": {"factor": [1.0, 2.0, 8.0]},
    "yarn": {
        "factor": [4.0, 40.0],
        "beta_fast": [32.0, 2.0],
        "beta_slow": [1.0, 0.5],
        "truncate": [True, False],
        "attention_factor": [None, 1.25],
        "mscale": [None, 0.707],
        "mscale_all_dim": [None, 1.0],
    },
    "llama3": {
        "factor": [8.0, 32.0],
        "low_freq_factor": [1.0, 2.0],
        "high_freq_factor": [4.0, 7.0],
    },
    "longrope": {"factor": [None, 32.0, 1.0], "attention_factor": [None, 1.19]},
}
TRAINED = 4096


def theirs(config, n):
    """Rates and factor of transformers: in single precision, where 1 less a ramp near 1 is off by up to 1e-5."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS as FUNCTIONS
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding

    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        rates, factor = GPTNeoXRotaryEmbedding(config).inv_freq, 1.0
    else:
        rates, factor = FUNCTIONS[kind](config, "cpu", seq_len=n)
    return rates.double().numpy(), float(factor)


def require_same(settings, d, config):
    for n in LENGTHS:
        expected, expected_factor = theirs(config, n)
        for half in an, at:
            rates, factor = half.rotary_rates(settings, d, n)
            np.testing.assert_allclose(np.asarray(rates), expected, rtol=2e-5)
            assert factor == pytest.approx(expected_factor, rel=1e-12)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings(name):
    """From config.json as it is, and as transformers rewrites it."""
    from transformers import LlamaConfig

    raw = PUBLISHED[name]
    config = LlamaConfig(**json.loads(json.dumps(raw)))
    d = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    require_same(raw, d, config)
    require_same(config.to_dict(), d, config)


@pytest.mark.parametrize("share", [1.0, 0.75, 0.25])
@pytest.mark.parametrize("d", [64, 96, 128])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("kind", RECIPES)
def test_settings_of_each_kind(kind, base, d, share):
    from transformers import LlamaConfig

    pairs = int(d * share) // 2
    lists = {
        "short_factor": np.linspace(1, 2.8, pairs).tolist(),
        "long_factor": np.geomspace(1, 64, pairs).tolist(),
    }
    names, values = RECIPES[kind].keys(), RECIPES[kind].values()
    for chosen in product(*values):
        settings = {"rope_type": kind, "rope_theta": base}
        settings |= dict(zip(names, chosen, strict=True))
        settings["partial_rotary_factor"] = share
        settings |= lists if kind == "longrope" else {}
        longest = TRAINED
        if kind in ("yarn", "longrope", "llama3"):
            settings["original_max_position_embeddings"] = TRAINED
            longest = 16 * TRAINED
        config = LlamaConfig(
            hidden_size=4 * d, num_attention_heads=4, max_position_embeddings=longest,
            rope_parameters=dict(settings),
        )  # fmt: skip
        require_same(settings | {"max_position_embeddings": longest}, d, config)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_turned_with_the_factor(close, kind, share):
    """Queries and keys of a model of transformers, whose factor multiplies cosines and sines only."""
    from transformers import GPTNeoXConfig
    from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox

    settings = {"rope_theta": 10_000.0, "partial_rotary_factor": share}
    settings |= {"rope_type": kind, "factor": 4.0}
    config = GPTNeoXConfig(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=64,
        rope_parameters=settings,
    )  # fmt: skip
    embedding = gpt_neox.GPTNeoXRotaryEmbedding(config)
    Q, K = torch.randn(2, 3, 2, 7, 32, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(20, 27)
    turned = gpt_neox.apply_rotary_pos_emb(Q, K, *embedding(Q, positions[None]))
    rates, factor = at.rotary_rates(config.to_dict(), 32)
    for X, expected in zip((Q, K), turned, strict=True):
        ours = at.rotary(X, positions, rates=rates, factor=factor, interleaved=False)
        close(ours, expected)


# The port on page 11D


@pytest.fixture(scope="module")
def port():
    """Its class and its configuration, from the cells of the page."""
    page = Path(__file__).parents[2] / "book/11_real_model/newer_models.ipynb"
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    names = {"torch": torch, "print": lambda *_: None}
    for text in texts:
        if "class Attention" in text or "Attention(config)" in text:
            exec(text, names)
    return names["Attention"], names["config"]


class Gapped(at.KVCache):
    """A cache that has seen more tokens than came, so that those to come are far from those that it holds."""

    gap = 0

    @property
    def n_seen(self):
        return self.gap + super().n_seen


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize("gap", [0, 3000])
@torch.no_grad()
def test_the_port_of_an_attention(port, kind, gap):
    """The first tokens at once and then one by one, maybe far from the first, where the slow rates matter."""
    import transformers
    from transformers.models.llama import modeling_llama as llama
    from transformers.models.qwen2 import modeling_qwen2 as qwen2

    made, raw = port
    raw = raw | {"model_type": kind, "max_position_embeddings": 131072}
    torch.manual_seed(1)
    if kind == "qwen2":
        config = transformers.Qwen2Config(**json.loads(json.dumps(raw)))
        theirs = qwen2.Qwen2Attention(config, layer_idx=0).eval()
        embedding = qwen2.Qwen2RotaryEmbedding(config)
    else:
        config = transformers.LlamaConfig(**json.loads(json.dumps(raw)))
        theirs = llama.LlamaAttention(config, layer_idx=0).eval()
        embedding = llama.LlamaRotaryEmbedding(config)
    config._attn_implementation = "eager"
    ours = made(raw)
    ours.load_state_dict(theirs.state_dict())

    X = torch.randn(2, 12, 3584)
    past, cache = transformers.DynamicCache(config=config), Gapped()
    parts, positions = [], torch.arange(12)
    positions[9:] += gap
    for new, place in zip(X.split([9, 1, 1, 1], 1), positions.split([9, 1, 1, 1]), strict=True):  # fmt: skip
        future = torch.full((len(place), len(place)), -torch.inf).triu(1)
        expected, _ = theirs(
            new, embedding(new, place[None]), past_key_values=past,
            attention_mask=future if len(place) > 1 else None,
        )  # fmt: skip
        parts.append(ours(new, cache))
        torch.testing.assert_close(parts[-1], expected, atol=2e-5, rtol=2e-4)
        cache.gap = gap
    if not gap:
        at_once = ours(X, at.KVCache())
        torch.testing.assert_close(torch.cat(parts, 1), at_once, atol=1e-5, rtol=1e-5)
