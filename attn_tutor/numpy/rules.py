"""Who may see whom: the rules of ``attn_tutor.rules``, and what needs this half's arrays."""

import numpy as np

from attn_tutor import rules
from attn_tutor._checks import broadcast, require_one_meaning, require_size
from attn_tutor.numpy._arrays import require_array, shapes
from attn_tutor.numpy._engine.visibility import Visibility
from attn_tutor.numpy.positional import alibi_slopes
from attn_tutor.rules import *  # noqa: F403 — so that a new rule is listed once, there
from attn_tutor.rules import Bias, Rule, Slopes, Window

__all__ = [*rules.__all__, "alibi", "check_mask"]  # noqa: PLE0604 — what is starred is a list of names


def alibi(slopes: np.ndarray | int) -> Bias:
    r"""A penalty that grows with the distance between query and key, at a rate of its own in each head: for ``bias=``.

    .. math:: B_{hij} = -\lambda_h\, \lvert i - j \rvert

    What :func:`alibi_bias` says, and no matrix. Source: Press et al. (2022), section 3.

    Args:
        slopes: λ of each head, (h,); or the number of heads, for the slopes of :func:`alibi_bias`.

    Returns:
        What ``bias=`` takes.

    Raises:
        TypeError: the slopes are neither real numbers in an array nor a whole number.
        ValueError: there are no heads.

    Example:
        >>> alibi(2).added(3, 1).tolist()
        [[[-0.125]], [[-0.0078125]]]
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
    for another. It is often an inverted mask: ``nn.MultiheadAttention`` has True for what is hidden. Do it once, before
    training, and not in a compiled function. Source: the convention of ``scaled_dot_product_attention``.

    Args:
        Q: queries, or their tokens, (…, n, q).
        K: keys, or their tokens, (…, m, k).
        mask: boolean, broadcasts to (…, n, m); True = may attend. Or a :class:`Rule`, as ``documents(ids)``.
        causal: forbid each query the keys after it, aligned lower right.
        window: most keys that a query sees, its own and those just before it; needs ``causal``.

    Returns:
        The mask as it was given, so that the call can stand in its place.

    Raises:
        ValueError: a sequence sees nothing; or a mask of two axes could be one row for each sequence, (b, m), as well
            as one for each query, (n, m), since there are as many.

    Example:
        >>> X = np.ones((2, 3, 4))
        >>> check_mask(X, X, np.array([[True, True, False]] * 2)[:, None]).tolist()
        [[[True, True, False]], [[True, True, False]]]
    """
    batch = broadcast(Q.shape[:-2], K.shape[:-2]) or ()
    shape = *batch, Q.shape[-2], K.shape[-2]
    visibility = Visibility.read("check_mask", shape, "cpu", mask, causal, window)
    visible, _ = visibility.dense
    blind = False if visible is None else ~visible.any((-2, -1))
    require_one_meaning("check_mask", mask, shape, blind)
    return mask
