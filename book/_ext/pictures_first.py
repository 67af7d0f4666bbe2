"""A cell that folds its code and draws shows the picture first, and the fold of its code below it."""

from typing import Any

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class PicturesFirst(SphinxPostTransform):
    default_priority = 300  # once MyST-NB has folded the code
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for cell in self.document.findall(nodes.container):
            fold, below = cell[:1], cell[1:]
            if not (fold and isinstance(fold[0], HideCodeCellNode)):
                continue
            if any(part.next_node(nodes.image) for part in below):
                cell[:] = below + fold


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(PicturesFirst)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
