"""Which query may attend to which key: boolean masks, True = may attend."""

import torch

from attn_tutor.torch._arrays import require_size, require_whole, value_of

Device = torch.device | str | int | None

__all__ = ["causal_mask", "document_mask", "padding_mask"]


def causal_mask(n: int, m: int | None = None, *, device: Device = None) -> torch.Tensor:
    r"""Permit each query the keys up to its own position.

    .. math:: \text{mask}_{ij} = [\, j \le i + m - n \,]

    The mask is aligned lower right: the last query sees every key, as decoding with a cache needs, where the n
    queries are the newest of m tokens. With n > m the first n − m queries see nothing. The ``is_causal`` flag
    of torch's ``scaled_dot_product_attention`` is aligned upper left instead; for n = m both agree.
    Source: Vaswani et al. (2017), section 3.2.3, for n = m.

    Args:
        n: number of queries.
        m: number of keys; None means n.
        device: where the result lives; None is torch's default.

    Returns:
        Boolean mask, (n, m); True = may attend.

    Example:
        >>> causal_mask(2, 3).tolist()
        [[True, True, False], [True, True, True]]
    """
    m = n if m is None else m
    require_size("causal_mask", "n", n)
    require_size("causal_mask", "m", m)
    return torch.ones(n, m, dtype=torch.bool, device=device).tril(m - n)


def padding_mask(
    valid_lens: torch.Tensor, m: int, *, device: Device = None
) -> torch.Tensor:
    r"""Permit the first ``valid_lens`` of m keys: the rest is padding.

    .. math:: \text{mask}_{bij} = [\, j < \text{valid\_lens}_{b} \,]
        \quad\text{or}\quad [\, j < \text{valid\_lens}_{bi} \,]

    Source: Zhang et al., Dive into Deep Learning, section 11.3, whose ``valid_lens`` this takes.

    Args:
        valid_lens: whole numbers between 0 and m: one for each sequence of a batch, (b,), or one for each query,
            (b, n).
        m: number of keys.
        device: where the result lives; None is that of ``valid_lens``.

    Returns:
        Boolean mask, (b, 1, m) or (b, n, m); True = may attend.

    Raises:
        ValueError: ``valid_lens`` is itself a mask, 0 and 1 for each of m keys.

    Example:
        >>> padding_mask(torch.tensor([1, 3]), 3).tolist()
        [[[True, False, False]], [[True, True, True]]]
    """
    require_size("padding_mask", "m", m)
    require_whole("padding_mask", "valid_lens", valid_lens)
    if valid_lens.ndim not in (1, 2):
        raise ValueError(
            f"padding_mask: valid_lens has shape {tuple(valid_lens.shape)} but needs (b,) or (b,n)"
        )
    # Positions in 64 bits, since m may be too large for the dtype of the lengths.
    lens = valid_lens.long() if device is None else valid_lens.to(device, torch.long)
    if value_of(lambda lens: ((lens < 0) | (lens > m)).any(), lens):
        raise ValueError(
            f"padding_mask: lengths must lie in 0 … m={m}, got {lens.min()} … {lens.max()}"
        )
    square = lens.ndim == 2 and lens.shape[1] == m > 1 and lens.numel()
    if square and value_of(lambda lens: lens.amax() == 1, lens, wait=True):
        raise ValueError(
            "padding_mask: valid_lens holds 0 and 1 alone, one for each key, as a mask does; "
            "a mask is taken as it is: mask.bool()[:, None]"
        )
    lens = lens[:, None] if lens.ndim == 1 else lens  # (b, 1 or n)
    return torch.arange(m, device=lens.device) < lens[..., None]  # (b, 1 or n, m)


def document_mask(documents: torch.Tensor) -> torch.Tensor:
    r"""Permit each token the tokens of its own document, where several are packed into one row.

    .. math:: \text{mask}_{ij} = [\, \text{document}_i = \text{document}_j \,]

    Together with ``causal=True`` each document is read as if it stood alone, with encodings of relative positions.
    Source: Krell et al. (2021).

    Args:
        documents: whole numbers, (…, n): the document that each token belongs to.

    Returns:
        Boolean mask, (…, n, n); True = may attend.

    Example:
        >>> document_mask(torch.tensor([7, 7, 8])).tolist()
        [[True, True, False], [True, True, False], [False, False, True]]
    """
    require_whole("document_mask", "documents", documents)
    if documents.ndim == 0:
        raise ValueError(
            f"document_mask: documents has shape {tuple(documents.shape)} but needs (…,n)"
        )
    return documents[..., :, None] == documents[..., None, :]
