"""Attention, taught and tested: queries, keys and values in NumPy and in torch.

The map of the package:

* ``attn_tutor.numpy``: every function of the book in NumPy, one module a chapter;
* ``attn_tutor.torch``: the same names and signatures in torch (autograd, CUDA), and ``torch.nn`` modules;
* ``attn_tutor.figures``: pictures of weights, masks, heads and encodings;
* ``attn_tutor.models``: published models, run by the functions of the two halves;
* ``attn_tutor.data``: small real data sets;
* ``attn_tutor.check``: checkers that say which mistake is in a solution of an exercise;
* ``attn_tutor.failures``: tests that say which bug is in a model or a function of yours.

This module imports none of them, so that ``import attn_tutor.numpy`` needs NumPy alone.
"""

__version__ = "0.1.0"
