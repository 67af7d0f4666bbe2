"""Chapter 3, second part: the logarithm of softmax."""

import numpy as np

import attn_tutor.numpy as an
from attn_tutor.check.chapters.inputs import LN3, Array, numbers
from attn_tutor.check.exercise import Exercise

draw = numbers(33)


def _log_softmax(scores: Array) -> Array:
    shifted = scores - scores.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


log_softmax = Exercise(3,
    "log_softmax(scores): log softmax along the last axis, exact where a weight underflows; (…, n, m) → (…, n, m)",
    _log_softmax, lambda draw: [
        (np.array([[LN3, 0.0]]),), (np.array([[LN3, 0.0], [2.0, 5.0]]),),
        (np.array([[1000.0, 999.0], [-1000.0, -1000.0]]),), (np.array([[0.0, -800.0, -1.0]]),), (draw(3, 5),),
        (draw(2, 3, 5),)
    ])  # fmt: skip
log_softmax.knows(
    ("the logarithm of the weights", lambda scores: np.log(an.softmax(scores)),
     "You take the logarithm of softmax. A weight below 1e-308 has underflowed to 0 by then, and log 0 is −∞. Subtract "
     "instead: scores minus their log-sum-exp."),
    ("the maximum not put back",
     lambda scores: scores - np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1, keepdims=True)),
     "Your log-sum-exp is that of the shifted scores, but you subtract it from the scores as they were. Subtract it "
     "from the shifted ones, or add the maximum to it."),
    ("summed over the whole array", lambda scores: (shifted := (scores - scores.max())) - np.log(np.exp(shifted).sum()),
     "You sum over the whole array. Each row has a softmax of its own: .sum(-1, keepdims=True)."),
)  # fmt: skip
