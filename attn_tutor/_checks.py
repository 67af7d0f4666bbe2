"""Check arguments before computing, and speak clearly when they do not fit. Knows no backend.

Shapes are written as NumPy writes those of generalised ufuncs: ``(n,d),(m,d)->(n,m)`` says that the last axes
of the first argument are n and d, and that the d of the second must be the same. Axes in front of those are
batch axes and broadcast.
"""

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Shape = tuple[int, ...]
FOREIGN_NAMES = {  # what others call it
    "is_causal": "causal here, aligned lower right",
    "attn_mask": "mask here if it is boolean, True = may attend, and bias if it is added to the scores",
    "key_padding_mask": "mask=~key_padding_mask[:, None, :] here: True = may attend",
    "attention_mask": "mask=attention_mask.bool()[:, None, :] here: True = may attend",
    "enable_gqa": "n_kv_heads here, the number of heads of K",
    "average_attn_weights": "weights.mean(-3) here",
    "embed_dim": "d_model here",
    "num_heads": "n_heads here",
    "head_dim": "d_h here, in MultiHeadAttention",
    "softcap": "attend(c * tanh(scaled_dot_score(Q, K) / c), V, mask) here",
    "batch_first": "always true here: leave it out",
    "theta": "base here",
    "rope_theta": "base here",
    "input_ids": "ids here",
    "position_ids": "positions here",
    "past_key_values": "caches here, a KVCache for each block",
    "max_new_tokens": "n_new here",
}


def checker(
    require: Callable[[str, str, Any], None],
    prepare: Callable[[str, dict[str, Any]], dict[str, Any]],
    as_is: Callable[[tuple[Any, ...]], bool],
) -> Callable[..., Any]:
    """The ``@shapes`` decorator of one half.

    Args:
        require: takes the function's name, an argument's and its value; raises unless that is an array of this half.
        prepare: takes the function's name and its arrays by name; returns them ready to compute with.
        as_is: whether arguments are arrays that ``prepare`` would leave as they are.
    """

    def shapes(
        signature: str, grouped_query: bool = False, **hints: str
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Hold a function to its shape signature; ``hints`` add advice to a mismatch of the axis they name.

        ``grouped_query``: with ``n_kv_heads`` the last batch axis is that of heads, and keys may have fewer.
        """
        inputs = re.findall(r"\((.*?)\)", signature.split("->")[0])
        cores = [tuple(core.split(",")) for core in inputs]
        results = re.findall(r"\((.*?)\)", signature.split("->")[1])
        outputs = [tuple(core.split(",")) for core in results]
        fit = _fit(cores)
        slow = {*FOREIGN_NAMES, *(["n_kv_heads"] if grouped_query else [])}
        if grouped_query:
            hints["…"] = "Heads that share keys: give n_kv_heads, how many K has"

        def decorate(fn: Callable[P, R]) -> Callable[P, R]:
            parameters = inspect.signature(fn).parameters
            names = list(parameters)[: len(cores)]
            most = sum(p.kind is not p.KEYWORD_ONLY for p in parameters.values())
            definition = inspect.unwrap(fn)
            known = {*parameters}
            usable = known - slow - {*names}  # without a further look
            inner: Any = fn
            while inner is not None:  # by_blocks reads it, too
                vars(inner)["__shapes__"] = signature
                vars(inner)["__axes__"] = cores, outputs
                inner = getattr(inner, "__wrapped__", None)

            @functools.wraps(fn)
            def checked(*args: P.args, **kwargs: P.kwargs) -> R:
                first: Any = args[: len(names)]
                usual = len(names) <= len(args) <= most
                usual &= not kwargs or usable.issuperset(kwargs)
                if usual and as_is(first) and fit(first):
                    return fn(*args, **kwargs)  # and quick
                ndims = [x.ndim for x in args[:1] if hasattr(x, "ndim")]
                refuse_foreign_names(fn.__name__, kwargs, *ndims)
                if not known.issuperset(kwargs):
                    return definition(*args, **kwargs)  # which reports its own name
                keyword = {name: kwargs[name] for name in names if name in kwargs}
                arrays: dict[str, Any] = {
                    **dict(zip(names, first, strict=False)),
                    **keyword,
                }
                count = len(first) + len(keyword)
                if not count == len(arrays) == len(names) or len(args) > most:
                    # Python itself reports what is missing, given twice or one too many.
                    return definition(*args, **kwargs)
                for name, array in arrays.items():
                    require(fn.__name__, name, array)
                sizes = {x: arrays[x].shape for x in arrays}
                if grouped_query and (g := kwargs.get("n_kv_heads")) is not None:
                    require_grouped(fn.__name__, sizes, g)
                    sizes |= {x: (*s[:-3], *s[-2:]) for x, s in sizes.items()}
                expected = dict(zip(names, cores, strict=True))
                _match(fn.__name__, signature, sizes, expected, hints)
                arrays = prepare(fn.__name__, arrays)
                others: Any = args[len(names) :]
                # Arrays given by name go by position, which what stands inside relies on.
                ready: Any = [arrays[name] for name in names]
                named: Any = {x: kwargs[x] for x in kwargs if x not in arrays}
                return fn(*ready, *others, **named)

            checked.__wrapped__ = definition
            return checked

        return decorate

    return shapes


def refuse_foreign_names(where: str, kwargs: dict[str, Any], ndim: int = 3) -> None:
    """Raise a ``TypeError`` where an argument has the name that others give it; ``ndim`` is that of the tokens.

    With 1, tokens are numbers, whose mask has an entry for each.
    """
    for name in FOREIGN_NAMES.keys() & kwargs.keys():
        rows = ", ".join(["None"] * max(1, ndim - 2))
        index = f"[:, {rows}, :]" if ndim > 1 else ""
        words = FOREIGN_NAMES[name].replace("[:, None, :]", index)
        raise TypeError(f"{where}: {name} is {words}")


def explain_foreign_names(method: Callable[P, R]) -> Callable[P, R]:
    """Let a layer say what it calls the arguments of others."""

    ndim = 1 if "ids" in inspect.signature(method).parameters else 3

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        where = type(args[0]).__name__
        refuse_foreign_names(where, kwargs, ndim)
        if isinstance(cache := kwargs.get("cache"), list | tuple):
            kind = type(cache).__name__
            raise TypeError(
                f"{where}: cache must be a KVCache, got {kind}; of keys and values that there are already, "
                "cache = KVCache(); cache.append(K, V) fills one"
            )
        return method(*args, **kwargs)

    return checked


def _fit(cores: list[tuple[str, ...]]) -> Callable[[tuple[Any, ...]], bool]:
    """A quick test that passes arrays whose axes agree, if their batch axes are the same or missing."""
    places: dict[str, tuple[int, int]] = {}  # axis: the argument that sets it, where
    same = []
    for i, core in enumerate(cores):
        for at, axis in enumerate(core, start=-len(core)):
            if places.setdefault(axis, (i, at)) != (i, at):
                same.append((i, at, *places[axis]))
    ranks = [len(core) for core in cores]

    def fit(arrays: tuple[Any, ...]) -> bool:
        shapes = [x.shape for x in arrays]
        batches = (), shapes[0][: -ranks[0]]
        for shape, rank in zip(shapes, ranks, strict=True):
            if len(shape) < rank or shape[:-rank] not in batches:
                return False
        return all(shapes[i][at] == shapes[j][first] for i, at, j, first in same)

    return fit


def _match(
    where: str,
    signature: str,
    given: dict[str, Shape],
    cores: dict[str, tuple[str, ...]],
    hints: dict[str, str],
) -> None:
    sizes: dict[str, tuple[str, int]] = {}  # axis: the argument that set it, its length
    batches = {}
    for name, shape in given.items():
        core = cores[name]
        if len(shape) < len(core):
            raise ValueError(
                f"{where}: {name} has shape {_text(shape)} but needs {_text(('…', *core))}; {signature}"
            )
        for axis, size in zip(core, shape[len(shape) - len(core) :], strict=True):
            first, expected = sizes.setdefault(axis, (name, size))
            if size != expected:
                hint = f" {hints[axis]}" if axis in hints else ""
                raise ValueError(
                    f"{where}: {name} has {axis}={size} but {first} has {axis}={expected}; {signature}.{hint}"
                )
        batches[name] = shape[: len(shape) - len(core)]
    if broadcast(*batches.values()) is None:
        found = ", ".join(
            f"{name} has {_text(batch)}" for name, batch in batches.items()
        )
        hint = f". {hints['…']}" if "…" in hints else ""
        raise ValueError(
            f"{where}: batch axes do not broadcast: {found}; {signature}{hint}"
        )


def broadcast(*shapes: Shape) -> Shape | None:
    """The common shape by NumPy's rule (equal, or 1 in one of them, counted from the right), or None."""
    first = shapes[0]
    # The usual case, and quick. Of tuples of other lengths Python compares the first entries too, which for the
    # compiler would be a rule about sizes that have nothing to do with each other.
    if all(len(shape) == len(first) and shape == first for shape in shapes):
        return first
    common = []
    for sizes in zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1):
        long = [size for size in sizes if size != 1]
        if any(size != long[0] for size in long):
            return None
        common.append(long[0] if long else 1)
    return tuple(common[::-1])


def require_array(array_type: Any, where: str, name: str, x: Any) -> None:
    """Raise a ``TypeError`` unless ``x`` is an array of this half that one can compute with."""
    if not isinstance(x, array_type):
        kind, got = _type_name(array_type), _type_name(type(x))
        raise TypeError(
            f"{where}: {name} must be a {kind}, got {got}; {_instead(kind, name, x)}"
        )
    if getattr(x, "is_nested", False):
        raise TypeError(
            f"{where}: {name} is a nested tensor; torch.nested.to_padded_tensor({name}, 0.0) makes a plain one, "
            "and mask=valid(lengths) hides its padding"
        )
    if "float8" in str(x.dtype):
        raise TypeError(
            f"{where}: {name} has dtype {x.dtype}, which is for storage; {name}.bfloat16() can be computed with"
        )


def _instead(kind: str, name: str, x: Any) -> str:
    """What to give in place of something that is no array."""
    in_numpy = kind == "numpy.ndarray"
    if name == "mask" and isinstance(x, bool):
        return "causal=True hides later keys" if x else "mask=None hides nothing"
    if name in ("mask", "bias") and isinstance(x, type):
        return f"{name}={x.__name__}() is one that it makes"
    if name in ("mask", "bias") and callable(x):
        rule = "Rule" if name == "mask" else "Bias"
        return f"{name}={rule}({name}) takes a function of positions"
    if hasattr(x, "weight"):  # a layer
        copy = ".detach().numpy()" if in_numpy else ""
        return f"{name}.weight.mT{copy} is its matrix, without a bias"
    maker = "numpy.asarray" if in_numpy else "torch.as_tensor"
    return f"{maker}({name}) makes one"


def require_boolean(array_type: type, where: str, mask: Any) -> None:
    """Raise a ``TypeError`` unless ``mask`` is a boolean array of this half."""
    require_array(array_type, where, "mask", mask)
    dtype = str(mask.dtype).removeprefix("torch.")
    if dtype != "bool":
        to_bool = "bool()" if hasattr(mask, "bool") else "astype(bool)"
        instead = (
            "what is added to the scores is a bias="
            if "float" in dtype
            else f"mask.{to_bool} makes one of ones and zeros"
        )
        raise TypeError(
            f"{where}: masks are boolean, True = may attend; got {dtype}; {instead}"
        )


def require_bias(array_type: type, where: str, bias: Any) -> None:
    """Raise unless ``bias`` holds real numbers."""
    require_array(array_type, where, "bias", bias)
    dtype = str(bias.dtype).removeprefix("torch.")
    if dtype == "bool":
        raise TypeError(
            f"{where}: a bias is added to the scores and holds numbers, got bool; give it as mask="
        )
    if not dtype.startswith(("float", "bfloat", "int", "uint")):
        raise TypeError(f"{where}: bias has dtype {bias.dtype}; it needs real numbers")


def require_fit(where: str, name: str, shape: Shape, scores: Shape) -> None:
    """Raise a ``ValueError`` unless a shape broadcasts to the ``scores`` shape, ``(…, n, m)``."""
    # Its last axes may be missing or 1, but must not make queries or keys out of nothing.
    core_fits = broadcast(shape[-2:], scores[-2:]) == scores[-2:]
    lead, batch = shape[:-2], scores[:-2]
    missing = len(batch) - len(lead)
    fewer = set(lead) - {1} and missing > 0
    as_first = fewer and broadcast((*lead, *(1,) * missing), batch) == batch
    as_last = fewer and broadcast(lead, batch) == batch
    fits = core_fits and broadcast(shape, scores) is not None
    none = ", ".join(["None"] * missing)
    behind = ", ".join([":"] * len(lead) + [none])
    hint = ""
    if as_first and core_fits:
        if name == "mask" and as_last:
            raise ValueError(
                f"{where}: a mask of shape {_text(shape)} could be one for each of the first or of the last axes of "
                f"{_text(batch)}. Write mask[{behind}] for one for each sequence, mask[{none}] for one for each head"
            )
        fits &= name != "mask"  # which would make heads out of nothing
        hint = f" One for each sequence is {name}[{behind}]."
    elif batch and shape[:-3] == batch and shape[-3] == 1 < scores[-3]:
        fits = False
        hint = f" The axis for heads is too many: {name}[..., 0, :, :]."
    elif batch and shape == (batch[0], scores[-1]):
        hint = f" One row for each sequence is {name}[:, {none}, :]."
    if not fits:
        raise ValueError(
            f"{where}: {name} has shape {_text(shape)} but must broadcast to the scores, {_text(scores)}.{hint}"
        )


def require_one_meaning(where: str, mask: Any, scores: Shape, blind: Any) -> None:
    """Raise a ``ValueError`` where a mask could mean another thing, or hides all keys of ``blind`` sequences."""
    *batch, n, _ = scores
    rows = tuple(mask.shape[:1]) if getattr(mask, "ndim", 0) == 2 else ()
    if rows != (1,) and rows == tuple(batch[:1]) == (n,):
        raise ValueError(
            f"{where}: a mask of shape {tuple(mask.shape)} could be one row for each sequence or for each query. "
            f"Write mask[:{', None' * len(batch)}, :] for one for each sequence, mask[None] for one for each query"
        )
    if n and blind is not False and blind.any():
        raise ValueError(
            f"{where}: no query sees any key in {int(blind.sum())} of {len(blind.reshape(-1))} sequences or heads. "
            "True = may attend; of a mask that says what is hidden, give ~mask"
        )


def lacks_heads(where: str, mask: Shape, batch: Shape, n_heads: int) -> bool:
    """Whether a mask of a multi-head call has no axis for the heads: three axes are one for each sequence.

    Raises:
        ValueError: it could as well be one for each head.
    """
    lead = tuple(mask[:-2])
    if len(lead) < 2:
        either = len(batch) == 0 and lead == (n_heads,) != (1,)
    else:
        readings = batch, (*batch, n_heads)
        either = len(lead) == len(batch) and set(lead) != {1}
        either &= all(broadcast(lead, axes) == axes for axes in readings)
    if either:
        by_sequence = (
            "mask[..., None, :, :]" if batch else "Q[None]"
        )  # they need an axis
        raise ValueError(
            f"{where}: a mask of shape {_text(mask)} could be one for each sequence or one for each head. "
            f"Write {by_sequence} for one for each sequence, mask[None] for one for each head"
        )
    return len(lead) == 1


def require_grouped(where: str, given: dict[str, Shape], n_kv_heads: Any) -> None:
    """Raise unless keys and values have so many heads, (…, n_kv_heads, m, d), and those of Q split among them."""
    require_size(where, "n_kv_heads", n_kv_heads, least=1)
    for name, shape in given.items():
        h = shape[-3] if len(shape) > 2 else 0
        if not h or (name != "Q" and h != n_kv_heads):
            raise ValueError(
                f"{where}: {name} has shape {_text(shape)}; n_kv_heads={n_kv_heads} needs Q (…,h,n,d), K and V "
                f"(…,{n_kv_heads},m,d)"
            )
        if name == "Q":
            require_divisible(where, "heads of Q", h, "n_kv_heads", n_kv_heads)


def require_heads(
    where: str,
    n_heads: int,
    n_kv_heads: int | None,
    W_q: Any,
    W_k: Any,
    W_v: Any = None,
    W_o: Any = None,
) -> int:
    """Raise unless what is projected splits into heads of one width; return the number of heads of the keys."""
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    for name, count in (("n_heads", n_heads), ("n_kv_heads", n_kv_heads)):
        require_size(where, name, count, least=1)
    require_divisible(where, "n_heads", n_heads, "n_kv_heads", n_kv_heads)
    require_divisible(where, "the width of W_q", W_q.shape[-1], "n_heads", n_heads)
    needed = W_q.shape[-1] // n_heads * n_kv_heads
    if W_k.shape[-1] != needed:
        raise ValueError(
            f"{where}: W_k has {W_k.shape[-1]} columns but {n_kv_heads} heads as wide as those of W_q need {needed}"
        )
    if W_v is not None:
        width = W_v.shape[-1]
        require_divisible(where, "the width of W_v", width, "n_kv_heads", n_kv_heads)
        d_hv = width // n_kv_heads
        if W_o.shape[-2] != n_heads * d_hv:
            raise ValueError(
                f"{where}: W_o has {W_o.shape[-2]} rows but {n_heads} heads of width {d_hv} need {n_heads * d_hv}"
            )
    return n_kv_heads


def require_pairs(where: str, rates: Shape, d: int) -> None:
    """Raise a ``ValueError`` unless d entries have a pair for each rate."""
    if d % 2 and rates == (d // 2 + 1,):
        raise ValueError(
            f"{where}: d={d} is odd, but entries turn in pairs; make d even"
        )
    if len(rates) != 1 or 2 * rates[0] > d:
        raise ValueError(
            f"{where}: rates have shape {tuple(rates)} but must be one for each pair to turn, at most ({d // 2},)"
        )


def require_positions(where: str, positions: Shape, rows: Shape) -> None:
    """Raise a ``ValueError`` unless positions broadcast to the rows, (…, n), without making rows out of one."""
    fitting = (), (1,), rows[-1:]
    if broadcast(positions, rows) is None or positions[-1:] not in fitting:
        raise ValueError(
            f"{where}: positions have shape {tuple(positions)} but must broadcast to {tuple(rows)}"
        )


def require_scale(where: str, scale: Any) -> None:
    """Raise unless ``scale`` is None or one real number, an array of one included."""
    if scale is not None:
        try:
            float(scale)
        except (TypeError, ValueError):
            kind = _type_name(type(scale))
            raise TypeError(f"{where}: scale must be one number, got {kind}") from None


def require_batch(where: str, name: str, shape: Shape, batch: Shape) -> None:
    """Raise a ``ValueError`` unless what has one number for each head broadcasts to the batch axes."""
    if broadcast(shape, batch) != batch:
        raise ValueError(
            f"{where}: {name} has shape {_text(shape)} but must broadcast to the batch axes, {_text(batch)}, "
            "whose last is that of the heads"
        )


def require_size(where: str, name: str, value: Any, least: int = 0) -> None:
    """Raise unless ``value`` is a whole number, ``least`` or more."""
    try:
        # To take the index of one of torch's symbolic lengths would make it a constant.
        whole = type(value).__name__ in ("int", "SymInt") or (
            not isinstance(value, bool) and operator.index(value) == value
        )
    except TypeError:
        whole = False
    if not whole:
        raise TypeError(
            f"{where}: {name} must be a whole number, got {_type_name(type(value))}"
        )
    if value < least:
        raise ValueError(f"{where}: {name} must be {least} or more, got {value}")


def require_draft(target: Any, draft: Any, tokens: Any, uniform: Any) -> None:
    """Raise a ``ValueError`` unless k guesses come with what it takes to accept them."""
    where, k, n_tokens = "accept_draft", len(tokens), target.shape[-1]
    needed = {"target": (k + 1, n_tokens), "draft": (k, n_tokens), "uniform": (k + 1,)}
    for (name, shape), x in zip(needed.items(), (target, draft, uniform), strict=True):
        if x.shape != shape:
            raise ValueError(
                f"{where}: {name} has shape {tuple(x.shape)} but {k} guesses need {shape}"
            )
    if not ((tokens >= 0) & (tokens < n_tokens)).all():
        raise ValueError(
            f"{where}: tokens must lie in 0 … {n_tokens - 1}, got {tokens.min()} … {tokens.max()}"
        )
    if not ((uniform >= 0) & (uniform < 1)).all():
        raise ValueError(f"{where}: uniform holds numbers outside [0, 1)")


def require_search(where: str, prefix: Shape, end: Any, max_len: Any) -> None:
    """Raise unless a search can begin: with prefixes, (b, t), and whole numbers."""
    if len(prefix) != 2:
        raise ValueError(
            f"{where}: prefix has shape {tuple(prefix)} but needs (b,t); t may be 0"
        )
    require_size(where, "end", end)
    require_size(where, "max_len", max_len, least=1)


def require_log_p(where: str, log_p: Any, tokens: Shape, end: int) -> None:
    """Raise a ``ValueError`` unless what a step gives for sentences, (b, k, t), can be log-probabilities of tokens."""
    b, k, _ = tokens
    if log_p.ndim != 3 or log_p.shape[:2] != (b, k):
        raise ValueError(
            f"{where}: step returned shape {tuple(log_p.shape)} but must return ({b},{k},|Y|), a row for each sentence"
        )
    if not (log_p <= 1e-3).all():
        raise ValueError(
            f"{where}: step must return log-probabilities, none above 0; got {float(log_p.max()):.4g}. "
            "log_softmax makes them of logits"
        )
    if not 0 <= end < log_p.shape[-1]:
        raise ValueError(f"{where}: end={end} is none of the {log_p.shape[-1]} tokens")


def require_positive(where: str, name: str, value: float) -> None:
    """Raise unless ``value`` is above 0 and finite."""
    _require(where, name, value, lambda x: 0 < x < math.inf, "be above 0 and finite")


def require_chance(where: str, name: str, value: float) -> None:
    """Raise unless ``value`` is a probability below 1: what is always dropped cannot grow to make up for it."""
    _require(where, name, value, lambda x: 0 <= x < 1, "lie in [0, 1)")


def _require(
    where: str, name: str, value: Any, right: Callable[[Any], Any], must: str
) -> None:
    try:
        is_right = bool(right(value))
    except (TypeError, ValueError):  # a string, or an array of several
        kind = _type_name(type(value))
        raise TypeError(f"{where}: {name} must be one number, got {kind}") from None
    if not is_right:
        raise ValueError(f"{where}: {name} must {must}, got {value}")


def require_divisible(where: str, name: str, width: int, by: str, parts: int) -> None:
    """Raise unless a width splits into equal parts."""
    if width % parts:
        raise ValueError(
            f"{where}: {name}={width} does not split into {by}={parts} equal parts; make {name} a multiple of {by}"
        )


def _text(shape: tuple[Any, ...]) -> str:
    return f"({','.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _type_name(kind: type) -> str:
    top = kind.__module__.split(".")[0]
    return kind.__name__ if top == "builtins" else f"{top}.{kind.__name__}"
