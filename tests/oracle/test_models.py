"""Published models against another implementation of them, transformers: same weights, same numbers, same text."""

import json
import re
from itertools import pairwise

import gguf
import numpy as np
import pytest
import regex
import torch

import attn_tutor.torch as at
from attn_tutor import check
from attn_tutor.models import rxnmapper
from attn_tutor.models.rxnmapper import RXNMapper
from attn_tutor.models.smollm2 import SmolLM2

pytestmark = pytest.mark.slow


# SmolLM2

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "1 2 3 4 5 6 7 8",
    "In 1969, 2 men walked on the moon; 600 million people watched.",
    "Le chat est assis sur le tapis. Où est le chien ?",
    "2 + 2 = 4, and 10 - 3 = 7. It's   spaced\t\toddly\n\n\n",
    "<|im_start|>user\nWhat is attention?<|im_end|>\n<|im_start|>assistant\n",
    "Водка, 水, ☕ and 😀: words that few have read.",
    "A",
]


@pytest.fixture(scope="module")
def smol(loaded):
    return loaded(SmolLM2)


@pytest.fixture(scope="module")
def llama(smol):
    """The model as transformers has it, on the same memory but for queries and keys."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )  # fmt: skip
    weights = {
        "model.embed_tokens.weight": smol.embedding,
        "lm_head.weight": smol.embedding,
        "model.norm.weight": smol.norm,
    }
    names = ["input_layernorm"]
    names += [f"self_attn.{letter}_proj" for letter in "qkvo"]
    names += ["post_attention_layernorm"]
    names += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    for i, layer in enumerate(smol.layers):
        for name, W in zip(names, layer, strict=True):
            turns = name.endswith(("q_proj", "k_proj"))
            W = halves(W.mT) if turns else W.mT if W.ndim == 2 else W
            weights[f"model.layers.{i}.{name}.weight"] = W
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(weights, assign=True)
    rotary = type(model.model.rotary_emb)
    model.model.rotary_emb = rotary(config)  # its buffers are no weights
    return model.eval()


def halves(W):
    """Rows of each head from neighbouring pairs (2i, 2i + 1) to pairs (i, i + 32), as transformers turns them."""
    return W.unflatten(0, (-1, 32, 2)).swapaxes(1, 2).flatten(0, 2)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_smollm2_has_the_logits_of_transformers(smol, llama, prompt):
    ids = smol.encode(prompt)
    with torch.no_grad():
        theirs = llama(ids[None]).logits[0]
    assert (smol(ids) - theirs).abs().max() < 2e-3


def test_smollm2_writes_the_text_of_transformers(smol, llama):
    from transformers import GenerationConfig

    ids = smol.encode(PROMPTS[1])
    greedy = GenerationConfig(max_new_tokens=40, do_sample=False)
    theirs = llama.generate(ids[None], greedy, attention_mask=torch.ones(1, len(ids)))
    assert len(theirs[0]) == len(ids) + 40
    assert smol.generate(ids, 40).tolist() == theirs[0].tolist()


def test_smollm2_knows_the_capital_of_france(smol):
    ids = smol.encode(PROMPTS[0])
    assert smol.decode(smol.generate(ids, 1)) == "The capital of France is Paris"


def test_byte_pairs_are_merged_as_the_algorithm_says(smol):
    """Sennrich et al. (2016): among neighbours merge the pair that is earliest in the list, until there is none."""
    model = json.loads(smol.tokenizer.to_str())["model"]
    rank = {tuple(pair): i for i, pair in enumerate(model["merges"])}
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letter = {byte: chr(byte) for byte in plain}
    letter |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    pieces = regex.compile(
        r"'(?:[stmd]|re|ve|ll)|\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
    )
    for prompt in (p for p in PROMPTS if "<|" not in p):
        ids = []
        for piece in pieces.findall(prompt):
            word = [letter[byte] for byte in piece.encode()]
            while best := min(
                pairwise(word), key=lambda p: rank.get(p, 1e9), default=()
            ):
                if best not in rank:
                    break
                i = list(pairwise(word)).index(best)
                word[i : i + 2] = ["".join(best)]
            ids += [model["vocab"][part] for part in word]
        assert smol.encode(prompt).tolist() == ids
        assert smol.decode(smol.encode(prompt)) == prompt


# gpt-oss: its layer, with numbers of chance


@pytest.mark.parametrize("d_h", [4, 6])
@pytest.mark.parametrize("kind", ["full_attention", "sliding_attention"])
def test_sink_logits_are_those_of_gpt_oss(kind, d_h):
    """Output, weights and gradients, at once and token by token."""
    from transformers import GptOssConfig
    from transformers.models.gpt_oss import modeling_gpt_oss

    torch.manual_seed(0)
    config = GptOssConfig(
        hidden_size=32, num_attention_heads=8, num_key_value_heads=2, head_dim=d_h, attention_bias=True,
        sliding_window=5, num_hidden_layers=1, layer_types=[kind], attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 150_000.0},
    )  # fmt: skip
    theirs = modeling_gpt_oss.GptOssAttention(config, layer_idx=0).double()
    torch.nn.init.normal_(theirs.sinks, 1.0, 2.0)
    window = theirs.sliding_window
    ours = at.MultiHeadAttention(
        32, 8, n_kv_heads=2, d_h=d_h, causal=True, window=window, sink_logits=True, dtype=torch.float64
    )  # fmt: skip
    names = {f"{x}_proj": f"{x}_proj" for x in "qkv"} | {"out_proj": "o_proj"}
    for mine, name in names.items():
        state = getattr(theirs, name).state_dict()
        getattr(ours, mine).load_state_dict(state)
    with torch.no_grad():
        ours.sink_logits.copy_(theirs.sinks)

    X = torch.randn(2, 13, 32, dtype=torch.float64, requires_grad=True)
    i, j = torch.arange(13)[:, None], torch.arange(13)
    hidden = (j > i) | (j <= i - (window or 13))
    mask = torch.zeros(13, 13).double().masked_fill(hidden, -torch.inf)
    turn = modeling_gpt_oss.GptOssRotaryEmbedding(config)(X, j[None])
    expected, their_weights = theirs(X, turn, mask[None, None])

    def rotate(start):
        return lambda Q: at.rotary(
            Q, torch.arange(start, start + Q.shape[-2]), base=150_000.0, interleaved=False
        )  # fmt: skip

    output, weights = ours(X, rotate=rotate(0), need_weights=True)
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-7)  # angles: single
    torch.testing.assert_close(weights, their_weights, rtol=1e-6, atol=1e-7)
    g = torch.randn_like(output)
    pairs = {"sink_logits": "sinks"}
    pairs |= {f"{x}.weight": f"{y}.weight" for x, y in names.items()}
    for here, there in pairs.items():
        mine, other = (
            torch.autograd.grad(out, layer.get_parameter(x), g, retain_graph=True)
            for out, layer, x in ((output, ours, here), (expected, theirs, there))
        )
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        cache = at.KVCache(window=window)
        rows = [ours(X[:, i : i + 1], cache=cache, rotate=rotate(i)) for i in range(13)]
    torch.testing.assert_close(torch.cat(rows, 1), expected, rtol=1e-6, atol=1e-7)


# RXNMapper

REACTIONS = [
    "CC(=O)O.OCC>>CC(=O)OCC",
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "C[C@H](N)C(=O)O.BrCc1ccc%10ccccc%10c1>>C[C@H](NCc1ccc2ccccc2c1)C(=O)O",
]
# Schwaller et al. (2019), section 2.2
PUBLISHED = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
)


@pytest.fixture(scope="module")
def rxn(loaded):
    return loaded(RXNMapper)


def test_rxnmapper_has_the_logits_of_transformers(rxn):
    from transformers import AlbertConfig, AlbertForMaskedLM

    file = rxnmapper.WEIGHTS.find()
    config = AlbertConfig.from_json_file(file.with_name("config.json"))
    config._attn_implementation = "eager"
    albert = AlbertForMaskedLM(config).eval()
    weights = torch.load(file, map_location="cpu", weights_only=True)
    left_over = albert.load_state_dict(weights, strict=False)
    assert not left_over.missing_keys
    assert all(".pooler." in name for name in left_over.unexpected_keys)
    for reaction in REACTIONS:
        ids = rxn.encode(reaction)
        assert rxn.decode(ids)[1:-1] == PUBLISHED.findall(reaction)
        with torch.no_grad():
            theirs = albert(ids[None], output_attentions=True)
        torch.testing.assert_close(rxn(ids), theirs.logits[0], rtol=0, atol=1e-4)
        attentions = torch.cat(theirs.attentions)
        torch.testing.assert_close(rxn.weights(ids), attentions, rtol=0, atol=1e-5)


def test_rxnmapper_aligns_atoms_as_its_authors_publish(rxn):
    """The first reaction of their README, whose mapping also uses the bonds."""
    ids = rxn.encode(REACTIONS[1])
    product, reactants, weights = rxn.align(ids)
    words = rxn.decode(ids)
    assert "".join(words[i] for i in product) == "CCCScnccccF"
    assert "".join(words[i] for i in reactants[:17]) == "CCCSCNCCOFccccncF"
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(product)))
    published = [0, 1, 2, 3, 15, 14, 13, 12, 11, 10, 9]
    assert weights.argmax(-1).tolist() == published


# Blocks of four-bit weights


def test_the_exercise_of_chapter_11_reads_blocks_as_gguf_does():
    blocks = np.concatenate([case[0] for case in check.dequantise.cases])
    kind = gguf.GGMLQuantizationType.Q4_1
    theirs = np.concatenate([gguf.dequantize(row, kind) for row in blocks])
    np.testing.assert_array_equal(
        check.dequantise.right(blocks).ravel(), theirs.ravel()
    )


# Rotary


@pytest.mark.parametrize(
    "scaled",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0, "beta_slow": 1.0},
    ],
    ids=lambda scaled: scaled["rope_type"],
)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rotary_turns_as_transformers_does(close, scaled, share):
    """In halves, a part of a head, at each of its rates; YaRN's factor is left to the scale of the scores."""
    from transformers import GPTNeoXConfig
    from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox

    settings = {"rope_theta": 10_000.0, "partial_rotary_factor": share} | scaled
    sizes = {"hidden_size": 64, "num_attention_heads": 2}
    config = GPTNeoXConfig(
        **sizes, max_position_embeddings=64, rope_parameters=settings
    )
    theirs = gpt_neox.GPTNeoXRotaryEmbedding(config)
    Q, K = torch.randn(2, 3, 2, 7, 32, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(20, 27)
    cos, sin = (x / theirs.attention_scaling for x in theirs(Q, positions[None]))
    turned = gpt_neox.apply_rotary_pos_emb(Q, K, cos, sin)
    for X, expected in zip((Q, K), turned, strict=True):
        close(
            at.rotary(X, positions, rates=theirs.inv_freq, interleaved=False), expected
        )
