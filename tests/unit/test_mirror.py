"""The two halves are mirrors: same names, signatures, shapes, files and conventions; and rooms keep apart."""

import ast
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from mirror import mirror

import attn_tutor
import attn_tutor.numpy as an
import attn_tutor.torch as at

PACKAGE = Path(attn_tutor.__file__).parent
RULES = "attn_tutor.rules"  # knows no backend, and both halves hand it on

# Names that one half alone has. Everything else is in both.
NUMPY_ONLY = {"attention_vjp", "additive_score_vjp", "softmax_vjp"}
TORCH_ONLY = {
    "BilinearAttention",
    "AdditiveAttention",
    "SelfAttention",
    "MultiHeadAttention",
    "PositionalEncoding",
    "Block",
    "EncoderDecoder",
    "LanguageModel",
    "TransformerTranslator",
    "History",
    "Translator",
    "load_weights",
    "record_weights",
    "save_weights",
    "train",
    "translation_loss",
}
EXTRAS = {
    "device": None,
    "dtype": None,
    "dropout_p": 0.0,
}  # keyword-only, after all others
TORCH_EXTRAS = {  # what of them must be there
    "causal_mask": ["device"],
    "padding_mask": ["device"],
    "sinusoidal_encoding": ["device", "dtype"],
    "alibi_bias": ["device", "dtype"],
    "attention": ["dropout_p"],
    "bilinear_attention": ["dropout_p"],
    "gaussian_attention": ["dropout_p"],
    "additive_attention": ["dropout_p"],
    "self_attention": ["dropout_p"],
    "cross_attention": ["dropout_p"],
    "multi_head_attention": ["dropout_p"],
}
WITHOUT_SOURCE = {"softmax_vjp", "additive_score_vjp"}  # derived here

BOTH = sorted(set(an.__all__) - NUMPY_ONLY)
FUNCTIONS = [
    (half, name)
    for half, names in ((an, an.__all__), (at, BOTH))
    for name in names
    if inspect.isfunction(getattr(half, name, None))
]
CLASSES = [name for name in BOTH if inspect.isclass(getattr(an, name))]

# The public API, word for word; the torch half's extras stand above.
# ruff: noqa: E501 — a signature stands on one line
SIGNATURES = """
dot_score(Q, K)
scaled_dot_score(Q, K, scale=None)
bilinear_score(Q, K, M)
additive_score(Q, K, W_q, W_k, w_v)
gaussian_score(Q, K, bandwidth=1.0)
gaussian_kernel(Q, K, bandwidth=1.0)
boxcar_kernel(Q, K, bandwidth=1.0)
triangular_kernel(Q, K, bandwidth=1.0)
epanechnikov_kernel(Q, K, bandwidth=1.0)
causal_mask(n, m=None)
padding_mask(valid_lens, m)
Rule(pairs)
Causal()
First(count)
Window(width, sinks=0)
Bias(added)
documents(ids)
valid(lengths)
prefix(lengths)
alibi(slopes)
check_mask(Q, K, mask=None, *, causal=False, window=None)
KVCache(max_len=None, *, window=None, sinks=0)
softmax(x, axis=-1)
masked_softmax(scores, mask=None)
normalize(weights)
attend(scores, V, mask=None, *, causal=False, window=None, bias=None)
partial_attention(Q, K, V, mask=None, *, causal=False, window=None, bias=None, scale=None)
merge(output, log_sum, other, other_log_sum)
sink_attention(Q, K, V, mask=None, *, sink_logits=0.0, causal=False, window=None, bias=None, scale=None, n_kv_heads=None)
attention_weights(Q, K, mask=None, *, causal=False, window=None, bias=None, scale=None)
attention(Q, K, V, mask=None, *, causal=False, window=None, bias=None, scale=None, n_kv_heads=None)
bilinear_attention(Q, K, V, M, mask=None, *, causal=False, window=None, bias=None)
gaussian_attention(Q, K, V, mask=None, *, causal=False, window=None, bias=None, bandwidth=1.0)
additive_attention(Q, K, V, W_q, W_k, w_v, mask=None, *, causal=False, window=None, bias=None)
nadaraya_watson(Q, K, V, kernel=gaussian_kernel, bandwidth=1.0)
self_attention(X, W_q, W_k, W_v, mask=None, *, causal=False, window=None, bias=None)
cross_attention(X, Y, W_q, W_k, W_v, mask=None, *, bias=None)
split_heads(X, n_heads)
merge_heads(X)
multi_head_attention(Q, K, V, W_q, W_k, W_v, W_o, n_heads, mask=None, *, causal=False, window=None, bias=None, n_kv_heads=None)
multi_head_weights(Q, K, W_q, W_k, n_heads, mask=None, *, causal=False, window=None, bias=None, n_kv_heads=None)
sinusoidal_encoding(n, d, base=10000.0)
rotary(X, positions=None, base=10000.0, *, rates=None, factor=1.0, interleaved=True)
rotary_rates(settings, d, n=None)
alibi_bias(n_heads, n, m=None)
greedy_search(step, prefix, end, max_len)
exhaustive_search(step, prefix, end, max_len)
beam_search(step, prefix, end, max_len, beam_width)
softmax_vjp(weights, g)
attention_vjp(Q, K, V, g, mask=None, *, causal=False, window=None, bias=None, scale=None)
additive_score_vjp(Q, K, W_q, W_k, w_v, g)
""".strip().splitlines()


def place(half, name):
    """The module that defines it, within its half."""
    return getattr(half, name).__module__.removeprefix(f"{half.__name__}.")


def bare(fn):
    """The signature as text, without types."""
    parameters = inspect.signature(fn).parameters.values()
    return plain(p.replace(annotation=p.empty) for p in parameters)


def plain(parameters):
    text = str(inspect.Signature(list(parameters)))
    return re.sub(r"<function (\w+) at \w+>", r"\1", text)


def test_names():
    missing = set(BOTH) - set(at.__all__)
    files = {f"torch/{place(an, name)}.py" for name in missing}
    assert not missing, f"attn_tutor/{files} must mirror {missing}"
    extra = set(at.__all__) - set(BOTH) - TORCH_ONLY
    files = {f"numpy/{place(at, name)}.py" for name in extra}
    assert not extra, f"attn_tutor/{files} must mirror {extra}, or TORCH_ONLY say why not"  # fmt: skip
    assert set(an.__all__) >= NUMPY_ONLY and set(at.__all__) >= TORCH_ONLY
    for half in (an, at):
        assert all(
            getattr(half, name).__module__.startswith((half.__name__, RULES))
            for name in half.__all__
        )


@pytest.mark.parametrize("half", [an, at])
def test_no_function_hides_its_module(half):
    modules = {x.name for x in pkgutil.iter_modules(half.__path__)}
    assert not modules & {*half.__all__}


def test_files():
    files = {
        half: {p.name for p in (PACKAGE / half).glob("*.py")}
        for half in ("numpy", "torch")
    }
    assert files["numpy"] - files["torch"] == {"gradients.py"}  # torch has autograd
    assert files["torch"] <= files["numpy"]
    for name in BOTH:
        assert place(an, name) == place(at, name), name


def test_signatures_are_those_of_the_design():
    there = {f"{name}{bare(getattr(an, name))}" for name in an.__all__}
    assert set(SIGNATURES) - there == set()


@pytest.mark.parametrize("name", BOTH)
def test_signatures_differ_by_the_listed_extras_alone(name):
    parameters = inspect.signature(getattr(at, name)).parameters
    extras = {k: p for k, p in parameters.items() if k in EXTRAS}
    assert extras.keys() >= set(TORCH_EXTRAS.get(name, ()))
    assert all(p.default == EXTRAS[k] and p.kind is p.KEYWORD_ONLY for k, p in extras.items())  # fmt: skip
    assert list(parameters)[len(parameters) - len(extras) :] == list(extras)
    common = [p.replace(annotation=p.empty) for k, p in parameters.items() if k not in extras]  # fmt: skip
    assert plain(common) == bare(getattr(an, name))


@pytest.mark.parametrize("name", BOTH)
def test_shape_signatures(name):
    assert getattr(getattr(an, name), "__shapes__", None) == getattr(
        getattr(at, name), "__shapes__", None
    )


def test_conventions():
    here, there = (half.__doc__.partition("\n\n")[2] for half in (an, at))
    assert here == there != ""


NUMPY = '''"""One."""

__all__ = ["rows"]


def rows(n):
    """Some rows.

    Args:
        n: how many,
            at least 1.

    Example:
        >>> rows(np.array(np.pi))
    """


def helper():
    """In NumPy."""
'''


def test_torch_docstrings_are_written_from_the_numpy_half():
    torch = NUMPY.replace("(n)", "(n, *, dtype)").replace("NumPy", "torch")
    torch = torch.replace("np.array(np.pi)", "torch.tensor(torch.pi)")
    torch = torch.replace("least 1.", "least 1.\n        dtype: of the result.")
    assert mirror(NUMPY, torch) == (torch, [])
    stale = torch.replace("One", "Two").replace(
        "how many,", "the count.\n        m: no,"
    )
    assert mirror(NUMPY, stale) == (torch, ["the file", "rows"])


@pytest.mark.parametrize("name", CLASSES)
def test_methods(name):
    here, there = (
        {
            method: bare(fn)
            for method, fn in inspect.getmembers(
                getattr(half, name), inspect.isfunction
            )
            if fn.__doc__ or method == "__init__"
        }
        for half in (an, at)
    )
    assert here == there


@pytest.mark.parametrize(
    ("half", "name"), FUNCTIONS, ids=lambda x: getattr(x, "__name__", x)
)
def test_docstrings_have_every_part(half, name):
    fn = getattr(half, name)
    doc = inspect.getdoc(fn)
    first, blank, *_ = doc.splitlines()
    assert first.endswith(".") and not blank
    parts = [
        ".. math::",
        "\nArgs:\n",
        "\nReturns:\n",
        "\nExample:\n    >>> ",
    ]
    positions = [doc.find(part) for part in parts]
    assert -1 not in positions and positions == sorted(positions)
    assert ("Source:" in doc[: positions[1]]) == (name not in WITHOUT_SOURCE)
    described = re.findall(
        r"^    (\w+): ", doc[positions[1] : positions[2]], re.MULTILINE
    )
    assert described == list(inspect.signature(fn).parameters)


@pytest.mark.parametrize("name", [*sorted(TORCH_ONLY), *CLASSES])
def test_docstrings_of_modules(name):
    module = getattr(at, name)
    doc, taken = inspect.getdoc(module), list(inspect.signature(module).parameters)
    assert ("\nArgs:\n" in doc) == bool(taken) and "\nExample:\n    >>> " in doc
    arguments = doc[doc.find("\nArgs:") : doc.find("\nExample:")] if taken else ""
    described = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    assert [x for x in described if not x.endswith("Error")] == taken


def imported(path):
    """Every module that a file imports, by its full name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path.name}: a relative import makes `import numpy` unclear"
            )
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


ABOVE = (
    "figures",
    "check",
    "data",
    "bench",
    "models",
    "search",
    "failures",
)  # stand above both halves
FORBIDDEN = {
    "numpy": [
        "torch",
        "matplotlib",
        "attn_tutor.torch",
        *(f"attn_tutor.{room}" for room in ABOVE),
    ],
    "torch": [
        "numpy",
        "matplotlib",
        "attn_tutor.numpy",
        *(f"attn_tutor.{room}" for room in ABOVE),
    ],
    "_both": ["numpy", "torch", "matplotlib", "attn_tutor.numpy", "attn_tutor.torch"],
    "_checks.py": ["numpy", "torch", "matplotlib", "attn_tutor"],
    "rules.py": [
        "numpy",
        "torch",
        "matplotlib",
        *(f"attn_tutor.{room}" for room in ("numpy", "torch", *ABOVE)),
    ],
    "__init__.py": ["numpy", "torch", "matplotlib", "attn_tutor"],
    ".": ["attn_tutor.check", "attn_tutor.bench"],
}


@pytest.mark.parametrize("room", FORBIDDEN)
def test_who_may_import_whom(room):
    place = PACKAGE / room
    files = [place] if place.is_file() else list(place.rglob("*.py"))
    assert files
    for path in files:
        if room == "." and path.relative_to(PACKAGE).parts[0].removesuffix(".py") in (
            "check",
            "bench",
            "live",
        ):
            continue
        for module in imported(path):
            for forbidden in FORBIDDEN[room]:
                assert not f"{module}.".startswith(f"{forbidden}."), (
                    f"{path.relative_to(PACKAGE)} imports {module}"
                )


@pytest.mark.parametrize("half", ["numpy", "torch"])
def test_rooms_below_the_chapters(half):
    """Within a half: the engine knows no formula, and scores know no masks."""
    below = {
        "scoring": {"_arrays"},
        "kernels": {"_arrays", "scoring"},
        "_softmax": {"_arrays"},
        "masks": {"_arrays"},
        "_engine/visibility": {"_backend"},
        "_engine/blocks": {"_arrays", "_engine"},
    }
    for name, allowed in below.items():
        mine = f"attn_tutor.{half}."
        modules = imported(PACKAGE / half / f"{name}.py")
        used = {
            m.removeprefix(mine).split(".")[0] for m in modules if m.startswith(mine)
        }
        assert used <= allowed, name
