"""Models of Hugging Face's, fresh from their configurations: what is known of them is found, and nothing else."""

import pytest
import torch
import transformers

from attn_tutor import failures

IDS = torch.randint(5, 90, (3, 9), generator=torch.Generator().manual_seed(0))
SMALL = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64}
SMALL |= {"num_hidden_layers": 2, "num_attention_heads": 4}


def gpt2():
    config = transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))


def bert():
    return transformers.BertModel(transformers.BertConfig(**SMALL))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "pads", "causes"),
    [
        (gpt2, "left", ["positions count pads"]),  # unless position_ids are given
        (gpt2, "right", []),
        (llama, "left", []),
        (bert, "right", []),
    ],
)
def test_a_model_of_transformers(make, pads, causes):
    torch.manual_seed(0)
    model, causal = make(), make is not bert
    found = failures.check_all(model, IDS, causal=causal, pads=pads)
    assert [finding.cause for finding in found] == causes
    assert not causal or not failures.differs_step_by_step(model, IDS)
