"""How many bytes a model that writes keeps for each text: the size of its cache of keys and values."""

from attn_tutor._checks import require_size

__all__ = ["cache_bytes"]


def cache_bytes(
    tokens: int,
    *,
    layers: int,
    kv_heads: int = 1,
    width: int,
    latent: int | None = None,
    window: int | None = None,
    sinks: int = 0,
    bits: int = 16,
) -> int:
    r"""Bytes of the keys and values of one text.

    .. math:: \text{bytes} = \frac{\text{bits}}{8} \cdot \text{layers} \cdot \min(\text{tokens}, \text{window} +
        \text{sinks}) \cdot \begin{cases} 2 \cdot \text{kv\_heads} \cdot \text{width} & \text{keys and values} \\
        \text{latent} + \text{width} & \text{latents} \end{cases}

    Source: counted from the definitions; for latents DeepSeek-AI (2024), DeepSeek-V2, table 1.

    Args:
        tokens: length of the text.
        layers: number of attention layers.
        kv_heads: heads of keys and values: as many as heads for plain multi-head attention, fewer for grouped-query
            attention, 1 for multi-query attention. Latents serve all heads.
        width: of a head; with latents, of the rotary key that all heads share.
        latent: width of the latent of multi-head latent attention; None keeps keys and values.
        window: tokens that a sliding window keeps; None keeps all.
        sinks: first tokens that are kept besides the window.
        bits: of each number: 32, 16, 8 or 4. The scales of quantised numbers are not counted.

    Returns:
        The number of bytes.

    Raises:
        TypeError: a number is not a whole number.
        ValueError: a number is negative, or there are sinks without a window.

    Example:
        >>> cache_bytes(1, layers=80, kv_heads=8, width=128)
        327680
    """
    given = dict(tokens=tokens, layers=layers, kv_heads=kv_heads, width=width)
    given |= dict(latent=latent or 0, window=window or 0, sinks=sinks, bits=bits)
    for name, value in given.items():
        require_size("cache_bytes", name, value)
    if sinks and window is None:
        raise ValueError(
            f"cache_bytes: sinks={sinks} are kept besides a window; give window= too"
        )
    held = tokens if window is None else min(tokens, window + sinks)
    row = 2 * kv_heads * width if latent is None else latent + width
    return layers * held * row * bits // 8
