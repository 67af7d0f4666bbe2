"""What a check found: the name of the bug, what was seen, and where to read about it."""

from dataclasses import dataclass

__all__ = ["Finding", "explain"]

GALLERY = "book/failure_gallery.ipynb"
# The bug's name → the heading that tells it, in the failure gallery.
HEADINGS = {
    "future is read": "Loss goes to zero and generated text is nonsense",
    "mask off by one": "Loss goes to zero and generated text is nonsense",
    "mask looks ahead": "Loss goes to zero and generated text is nonsense",
    "leak": "Loss goes to zero and generated text is nonsense",
    "noise is learnt": "Loss goes to zero and generated text is nonsense",
    "heads cut by reshape": "`reshape` or `view` in place of `transpose`",
    "inverted mask": "Inverted attention mask",
    "token sees nothing": "Inverted attention mask",
    "no earlier token is read": "`reshape` or `view` in place of `transpose`",
    "batch taken for tokens": "`batch_first` left out",
    "sentences mixed": "Implicit dimension choice for softmax",
    "softmax over the wrong axis": "Implicit dimension choice for softmax",
    "one path differs": "The mask is lost on one code path",
    "mask not used": "The mask is lost on one code path",
    "mask added as 0 and 1": "A mask of 0 and 1 is added to the scores",
    "mask hides nothing": "A mask of 0 and 1 is added to the scores",
    "scores multiplied by the mask": "A mask of 0 and 1 is added to the scores",
    "mask after softmax": "A mask of 0 and 1 is added to the scores",
    "mask of (b, m) read as (n, m)": "A mask of shape (b, m) is read as (n, m)",
    "mask repeated for the wrong heads": "Attention mask repeated for the wrong heads",
    "mask as a large number": "value cannot be converted to type Half without overflow",
    "masks add up": "`finfo.min` masks add up to -inf",
    "empty row is NaN": "Loss is NaN after the first step, with left padding",
    "gradient not finite": "NaN gradient from `torch.where`",
    "positions count pads": "Left padding shifts the position ids",
    "answer read at a pad": "Right-padding was detected",
    "documents mixed": "Packed documents attend to each other",
    "mask of the wrong dtype": "Expected attn_mask dtype to be bool or float",
    "position past the table": "index out of range in self",
    "token past the table": "index out of range in self",
    "mask of another shape": "A mask of shape (b, m) is read as (n, m)",
    "view after a transpose": "view size is not compatible",
    "widths differ": "mat1 and mat2 shapes cannot be multiplied",
    "no √d": "Missing scale, no sqrt of d",
    "times √d": "Missing scale, no sqrt of d",
    "√ of another width": "Missing scale, no sqrt of d",
    "√d too many": "T5 has no sqrt of d, and sdpa adds one",
    "groups by repeat": "`repeat` in place of `repeat_interleave` for GQA heads",
    "weights differ": "Converted weights load, and the outputs are wrong",
    "positions differ": "RoPE interleaved or half split",
    "far positions differ": "RoPE in bfloat16 loses positions",
    "sum in half precision": "Attention weights do not sum to 1 in half precision",
    "causal mask upper left": "`is_causal` with a KV cache sees only the first key",
    "cache differs": "KV cache in which all keys are the same",
    "random in eval": "`model.eval()` and outputs still change",
    "state between calls": "`model.eval()` and outputs still change",
    "targets not moved": "Labels not shifted, the model repeats its last token",
    "targets moved twice": "Labels not shifted, the model repeats its last token",
    "targets one back": "Labels not shifted, the model repeats its last token",
    "targets wrap round": "Labels not shifted, the model repeats its last token",
    "pads are counted": "Mean over pad tokens",
    "end never taught": "`pad_token = eos_token`, and generation never stops",
    "loss depends on the cut": "Gradient accumulation changes the loss",
    "short is better": "Beam search returns short or empty outputs",
    "scores are stored": "CUDA out of memory at long texts",
    "slow kernel": "The slow kernel is taken in silence",
    "processes differ": "Bias added once for each tensor parallel rank",
    "processes wait": "torch.distributed hangs in send and recv",
    "heads cut apart": "Fused QKV weights split across GPUs give garbage",
    "local positions": "Context parallel: every rank starts at position 0",
    "gradient without softmax": "loss_parallel and log_softmax: wrong gradient, right loss",
}
SYMPTOMS = "Find it by its symptom"
OTHER_PAGES = {
    "order is lost": ("book/06_positional_encoding.ipynb", "Positional encoding"),
    "pads are read": (GALLERY, SYMPTOMS),  # the table: none of the known patterns
    "shapes do not fit": (GALLERY, SYMPTOMS),
    "NaN": (GALLERY, SYMPTOMS),
    "another formula": (GALLERY, SYMPTOMS),
    "values are the keys": (GALLERY, SYMPTOMS),
    "mask differs": ("book/03_masked_softmax.ipynb", "Masked softmax"),
    "numbers out of range": ("book/03_masked_softmax.ipynb", "Masked softmax"),
}

ERRORS = {  # part of a message → the bug
    "attn_mask dtype": "mask of the wrong dtype",
    "for attn_mask": "mask of the wrong dtype",
    "without overflow": "mask as a large number",
    "index out of range": "position past the table",
    "out of bounds": "position past the table",
    "out of memory": "scores are stored",
    "not enough memory": "scores are stored",
    "No available kernel": "slow kernel",
    "view size is not compatible": "view after a transpose",
    "cannot be multiplied": "widths differ",
    "D attn_mask is": "mask of another shape",
    "key_padded_mask": "mask of another shape",
    "must match": "shapes do not fit",
    "shape": "shapes do not fit",
    "size": "shapes do not fit",
}


@dataclass(frozen=True)
class Finding:
    """What a check saw. It is true if there is a bug, so that a test reads ``assert not leaks_future(…)``.

    Args:
        check: the function that looked.
        cause: the bug's name; "" if all is well.
        says: what was seen, in a sentence.

    Example:
        >>> bool(Finding("leaks_future")), bool(Finding("leaks_future", "no causal mask"))
        (False, True)
    """

    check: str
    cause: str = ""
    says: str = ""

    def __bool__(self) -> bool:
        return self.cause != ""

    @property
    def read(self) -> str:
        """The section that tells the bug, and its page."""
        if not self:
            return ""
        page, heading = OTHER_PAGES.get(self.cause, (GALLERY, HEADINGS.get(self.cause)))
        return f"“{heading}” in {page}".replace("`", "") if heading else page

    def __str__(self) -> str:
        if not self:
            return f"{self.check}: {self.says or 'no'}"
        return f"{self.check}: {self.cause}\n    {self.says}\n    read {self.read}"


def explain(error: BaseException, check: str = "explain") -> Finding:
    """The bug that an error message speaks of.

    Args:
        error: what was raised.
        check: who was looking.

    Returns:
        A finding; its cause is the error's own name if the message is none that is known here.

    Example:
        >>> explain(IndexError("index out of range in self")).cause
        'position past the table'
    """
    text = str(error)
    cause = next(
        (ERRORS[part] for part in ERRORS if part in text), type(error).__name__
    )
    return Finding(check, cause, (text.splitlines() or [""])[0])
