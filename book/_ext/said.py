"""Sentences as one hears them, each with what is to be said about it: ``{said}`` folds the answers of its list.

:::{said}
Softmax normalises.
: **False.** …
:::
"""

from typing import Any

from docutils import nodes
from recall import Fold, Question
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class SaidBox(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        whole: Any = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, whole)
        return [
            Fold("", Question("", "", *term.children), *answer.children, classes=["said"])
            for term, answer in whole.findall(nodes.definition_list_item)
        ]  # fmt: skip


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("said", SaidBox)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
