"""Lets Python look for unused cycles of objects seldom while the book is built.

The pages stay in memory as trees of millions of nodes, and each look walks through all of them.
"""

import gc

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    gc.set_threshold(200_000, 50, 100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
