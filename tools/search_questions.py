"""Forty questions, and for each the sections that a person would open: they measure tools/search_index.py.

Asked in a reader's words before any search had run, without looking at the sections' own. Chapters 8, 9 and those
after 10 have none. A section is "page: title"; with several, any of them answers.
"""

QUESTIONS: dict[str, list[str]] = {
    "why divide by the root": ["02_scoring_functions: Divide by √d"],
    "which words does padding change": ["03_masked_softmax: Three sentences in one array"],
    "how do I stop the model from seeing the future": [
        "03_masked_softmax: Not there yet: causal masks",
        "04_self_attention/future: Causal: nobody sees the future",
    ],
    "exp overflows for large logits": ["03_masked_softmax: Scores of any size"],
    "all keys of a query are masked": ["03_masked_softmax: A row with nothing to attend to"],
    "derivative of softmax": [
        "03_masked_softmax/softmax_up_close: The Jacobian",
        "07_gradients: Line 3: back through softmax",
        "03_masked_softmax/softmax_up_close: How the weights answer to the scores",
    ],
    "vanishing gradient when one weight is almost 1": [
        "03_masked_softmax/softmax_up_close: Where the gradient dies",
        "07_gradients: Where the gradient dies",
        "02_scoring_functions/learn_a_score: What softmax lets through",
    ],
    "is attention permutation equivariant": ["04_self_attention/order: What word order does: nothing"],
    "difference between self-attention and cross-attention": ["04_self_attention/two_sources: Cross-attention"],
    "why are there three different projection matrices": ["04_self_attention: One source, three projections"],
    "quadratic cost in the sequence length": [
        "04_self_attention/two_sources: What it costs",
        "10_fast_attention: The bill of the textbook",
    ],
    "RNN versus attention": ["04_self_attention/two_sources: Beside a recurrent network"],
    "are some heads useless, can they be pruned": ["05_multi_head_attention: Remove a head and measure"],
    "grouped-query attention": ["05_multi_head_attention/engineers: Fewer heads for keys and values"],
    "convert weights from nn.MultiheadAttention": [
        "05_multi_head_attention/engineers: To and from torch's own layer",
        "failure_gallery: Converted weights load, and the outputs are wrong",
    ],
    "how many heads should I use, and how wide": [
        "05_multi_head_attention: The width of a head",
        "05_multi_head_attention: What heads cost",
    ],
    "reshape or transpose when splitting heads": [
        "failure_gallery: `reshape` or `view` in place of `transpose`",
        "05_multi_head_attention: One big product and a split",
    ],
    "why sinusoids and not just the number of the position": [
        "06_positional_encoding/sinusoids: Why sine and cosine?",
        "06_positional_encoding: What a position should look like",
    ],
    "rotary embeddings": ["06_positional_encoding: RoPE: turn the query and the key"],
    "linear penalty for distant tokens": ["06_positional_encoding/distances: ALiBi: far keys pay"],
    "extending the context window of a RoPE model": [
        "06_positional_encoding/distances: Longer texts for a model with RoPE",
        "where_next: Long contexts",
    ],
    "trainable position vectors": ["06_positional_encoding: Who bites?"],
    "why are embeddings multiplied by the square root of the model width": [
        "06_positional_encoding/sinusoids: The factor √d"
    ],
    "kernel regression": [
        "01_queries_keys_values/statistics: Then, a kernel",
        "01_queries_keys_values: A lookup that forgives",
    ],
    "curse of dimensionality": ["01_queries_keys_values/statistics: More features, worse answers"],
    "compare with linear regression": ["01_queries_keys_values/statistics: The rival: a straight line"],
    "no neighbour within the bandwidth": ["01_queries_keys_values/statistics: Nobody at home"],
    "cosine similarity": ["02_scoring_functions/corners: Bounded scores, and the crowd"],
    "Bahdanau score with a small neural network": ["02_scoring_functions: Additive: let a network compare"],
    "weights flatten as the number of keys grows": ["02_scoring_functions/corners: Bounded scores, and the crowd"],
    "backpropagation by hand through the value product": [
        "07_gradients: Lines 1 and 2: back through O = AV"
    ],
    "check gradients with finite differences": ["07_gradients: A check for every line", "07_gradients: Nudge a score"],
    "online softmax": ["10_fast_attention: One pass over the keys"],
    "flash attention tiling": ["10_fast_attention: Tiles", "10_fast_attention: What tiles move"],
    "recomputation in the backward pass saves memory": [
        "10_fast_attention: Backwards: compute it twice, store it never"
    ],
    "bfloat16 accuracy": ["10_fast_attention: Half precision", "failure_gallery: RoPE in bfloat16 loses positions"],
    "memory bandwidth limits generation": [
        "10_fast_attention: The roofline of a decode step",
        "10_fast_attention: One token at a time",
    ],
    "my loss is NaN": ["failure_gallery: Loss is NaN after the first step, with left padding"],
    "mask is the wrong way round, True means ignore": [
        "failure_gallery: Inverted attention mask",
        "notation: Rosetta table",
    ],
    "outputs differ from run to run in evaluation": [
        "failure_gallery: `model.eval()` and outputs still change"
    ],
}  # fmt: skip  # a question a line
