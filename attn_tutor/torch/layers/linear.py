"""The learnt projections of a layer: torch's own linear layers, with numbers of our drawing."""

import torch
from torch import nn
from torch.nn.utils import skip_init

Device = torch.device | str | int | None
Dtype = torch.dtype | None


def linear(
    d_in: int, d_out: int, *, bias: bool, device: Device, dtype: Dtype
) -> nn.Linear:
    """A linear layer with no numbers yet: :func:`draw` draws them."""
    device = torch.get_default_device() if device is None else device
    return skip_init(nn.Linear, d_in, d_out, bias=bias, device=device, dtype=dtype)


@torch.no_grad()
def draw(*layers: nn.Linear) -> None:
    """Keep variance in both directions (Glorot & Bengio, 2010); biases are 0."""
    for layer in layers:
        # Row by row of the matrix that tokens are multiplied with; torch stores it the other way round.
        W = layer.weight.new_empty(layer.in_features, layer.out_features)
        layer.weight.copy_(nn.init.xavier_uniform_(W).mT)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
