"""Who may see whom, said in a line: rules that take the place of n × m masks and biases."""

import numpy as np

from attn_tutor import geometry
from attn_tutor._checks import broadcast, require_size
from attn_tutor.geometry import Rule, Slopes
from attn_tutor.numpy._arrays import require_array, require_whole, shapes
from attn_tutor.numpy.positional import alibi_slopes
from attn_tutor.numpy.visibility import Visibility

__all__ = ["Window", "alibi", "check_mask", "documents", "prefix", "valid"]


class Window(geometry.Window):
    r"""A window of keys before each query, and the first keys besides: for ``window=``, wherever a number can stand.

    .. math:: \text{seen}_{ij} = [\, i - \text{width} < j \le i \,] \lor [\, j < \text{sinks} \,\land\, j \le i \,]

    Many heads draw on the first tokens whatever they hold, so that a window alone loses them.
    Source: Xiao et al. (2024), section 3.2.

    Args:
        width: most keys that a query sees, its own and those just before it.
        sinks: how many of the first keys it sees besides.

    Raises:
        TypeError: a number is not a whole number.
        ValueError: the width is below 1, or there are fewer sinks than none.

    Example:
        >>> Window(256, sinks=4)
        Window(256, sinks=4)
    """

    def __init__(self, width: int, sinks: int = 0) -> None:
        require_size("Window", "width", width, least=1)
        require_size("Window", "sinks", sinks)
        super().__init__(width, sinks)

    def __repr__(self) -> str:
        """As it is written."""
        return super().__repr__()


def documents(ids: np.ndarray) -> Rule:
    r"""Permit each token the tokens of its own document, where several are packed into one row: for ``mask=``.

    .. math:: \text{mask}_{ij} = [\, \text{id}_i = \text{id}_j \,]

    What :func:`document_mask` says, and no matrix, as long as each document stands in one piece. With fewer queries
    than keys the queries are the last tokens. Source: Krell et al. (2021).

    Args:
        ids: the number of the document that each key belongs to, (…, m).

    Returns:
        A rule, which combines with others and with a boolean mask by ``&``.

    Raises:
        TypeError: the ids are not whole numbers in an array.
        ValueError: there is no axis of tokens.

    Example:
        >>> documents(np.array([7, 7, 8])) & valid(np.array(2))
        Rule(documents, valid)
    """
    require_whole("documents", "ids", ids)
    if ids.ndim == 0:
        raise ValueError("documents: ids has shape () but needs (…,m)")
    return Rule(documents=ids)


def valid(lengths: np.ndarray) -> Rule:
    r"""Permit the first keys of each sequence, since the rest is padding: for ``mask=``.

    .. math:: \text{mask}_{bij} = [\, j < \text{length}_b \,]

    What :func:`padding_mask` says, for one length a sequence. Source: Zhang et al., Dive into Deep Learning, section
    11.3.

    Args:
        lengths: how many keys there are, one for each sequence, (b,), or for all, ().

    Returns:
        A rule, which combines with others and with a boolean mask by ``&``.

    Raises:
        TypeError: the lengths are not whole numbers in an array.
        ValueError: a length is negative.

    Example:
        >>> valid(np.array([3, 5]))
        Rule(valid)
    """
    _require_lengths("valid", lengths)
    return Rule(valid=lengths)


def prefix(lengths: np.ndarray) -> Rule:
    r"""Permit the first keys of each sequence to all queries, whatever ``causal`` and ``window`` say: for ``mask=``.

    .. math:: \text{seen}_{bij} = [\, j < \text{length}_b \,] \lor \text{causal}_{ij}

    The prompt is read in both directions, and what follows is written from left to right.
    Source: Raffel et al. (2020), section 3.2.1, "causal with prefix".

    Args:
        lengths: how many keys all queries see, one for each sequence, (b,), or for all, ().

    Returns:
        A rule, which combines with others and with a boolean mask by ``&``.

    Raises:
        TypeError: the lengths are not whole numbers in an array.
        ValueError: a length is negative.

    Example:
        >>> prefix(np.array(2)) & valid(np.array([3, 5]))
        Rule(prefix, valid)
    """
    _require_lengths("prefix", lengths)
    return Rule(prefix=lengths)


def alibi(slopes: np.ndarray | int) -> Slopes:
    r"""A penalty that grows with the distance between query and key, at a rate of its own in each head: for ``bias=``.

    .. math:: B_{hij} = -\lambda_h\, \lvert i + m - n - j \rvert

    What :func:`alibi_bias` says, and no matrix. Source: Press et al. (2022), section 3.

    Args:
        slopes: λ of each head, (h,); or the number of heads, for the slopes of :func:`alibi_bias`.

    Returns:
        What ``bias=`` takes.

    Raises:
        TypeError: the slopes are neither real numbers in an array nor a whole number.
        ValueError: there are no heads.

    Example:
        >>> alibi(2).slopes.tolist()
        [0.0625, 0.00390625]
    """
    if isinstance(slopes, int):
        require_size("alibi", "slopes", slopes, least=1)
        slopes = np.array(alibi_slopes(slopes))
    require_array("alibi", "slopes", slopes)
    if slopes.dtype.kind not in "iuf":
        raise TypeError(f"alibi: slopes are real numbers, got {slopes.dtype}")
    return Slopes(slopes)


@shapes("(n,q),(m,k)->()")
def check_mask(
    Q: np.ndarray,
    K: np.ndarray,
    mask: np.ndarray | Rule | None = None,
    *,
    causal: bool = False,
    window: int | Window | None = None,
) -> np.ndarray | Rule | None:
    r"""Refuse a mask that says what is hardly meant; what stands in its place in :func:`attention` stands here.

    .. math:: \exists\, i, j:\ \text{mask}_{bij} \quad \text{for every sequence } b

    A sequence of which no query sees any key gets 0 without a word, and so does one that the axes of a mask mistake
    for another. It is often an inverted mask: ``nn.MultiheadAttention`` has True for what is hidden. To look costs no
    more memory than the mask; do it once, before training, and not in a compiled function.
    Source: the convention of ``scaled_dot_product_attention``.

    Args:
        Q: queries, or their tokens, (…, n, q).
        K: keys, or their tokens, (…, m, k).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or rules, as ``documents(ids) & valid(lengths)``.
            None permits every key.
        causal: also forbid each query the keys after it, aligned lower right (see :func:`causal_mask`).
        window: most keys that a query sees, its own and those just before it; needs ``causal``. :class:`Window` adds
            sinks. None sets no limit.

    Returns:
        The mask as it was given, so that the call can stand in its place.

    Raises:
        TypeError: an argument is not an array of this half, or the mask is not boolean.
        ValueError: the shapes do not fit; or a sequence sees nothing; or a mask of two axes could be one row for each
            sequence, (b, m), as well as one for each query, (n, m), since there are as many.

    Example:
        >>> X = np.ones((2, 3, 4))
        >>> check_mask(X, X, np.array([[True, True, False]] * 2)[:, None]).tolist()
        [[[True, True, False]], [[True, True, False]]]
    """
    where = "check_mask"
    see = Visibility.of(where, Q, K, mask=mask, causal=causal, window=window)
    see.require_sense(where, mask, broadcast(Q.shape[:-2], K.shape[:-2]) or ())
    return mask


def _require_lengths(where: str, lengths: np.ndarray) -> None:
    require_whole(where, "lengths", lengths)
    if (lengths < 0).any():
        raise ValueError(f"{where}: lengths must be 0 or more, got {lengths.min()}")
