"""The lines one would copy: a cell tagged ``lines-numpy`` and the next, tagged ``lines-torch``, stand in two tabs.

They follow the tabs of the package's source (``source_tabs.py``): a reader who chose torch sees torch.
"""

from docutils import nodes
from source_tabs import HALVES
from sphinx.application import Sphinx
from sphinx_design.shared import create_component


def put_in_tabs(app: Sphinx, doctree: nodes.document) -> None:
    first, *_ = (f"tag_lines-{half}" for half in HALVES)
    for cell in [
        *doctree.findall(
            lambda x: first in getattr(x, "attributes", {}).get("classes", ())
        )
    ]:
        start = cell.parent.index(cell)
        parent, cells = cell.parent, cell.parent[start : start + len(HALVES)]
        tabs = create_component("tab-set", classes=["sd-tab-set"])
        for (half, name), part in zip(HALVES.items(), cells, strict=True):
            if f"tag_lines-{half}" not in part["classes"]:
                raise ValueError(
                    f"{app.env.docname}: no cell lines-{half} below {first}"
                )
            label = nodes.rubric(name, name, classes=["sd-tab-label"])
            label["sync_group"], label["sync_id"] = "halves", half
            content = create_component(
                "tab-content", classes=["sd-tab-content"], children=[part]
            )
            tabs += create_component(
                "tab-item", classes=["sd-tab-item"], children=[label, content]
            )
        parent[start : start + len(HALVES)] = [tabs]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", put_in_tabs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
