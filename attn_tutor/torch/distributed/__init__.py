"""Attention over processes: tokens or heads spread over them, on torch's own distributed engine."""

# ruff: noqa: F403 — what is public stands in each module's own __all__

from attn_tutor.torch._merge import *
from attn_tutor.torch.distributed.context import *
from attn_tutor.torch.distributed.launch import *
from attn_tutor.torch.distributed.layout import *
from attn_tutor.torch.distributed.ring import *
from attn_tutor.torch.distributed.tensor_parallel import *
from attn_tutor.torch.distributed.ulysses import *

__all__ = sorted(k for k, x in globals().items() if callable(x) and k[0] != "_")
