"""Under the title of each chapter, a link that downloads its notebook."""

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def add_link(app: Sphinx, doctree: nodes.document) -> None:
    notebook = Path(app.env.doc2path(app.env.docname))
    title = next(doctree.findall(nodes.title), None)
    if notebook.suffix != ".ipynb" or title is None:
        return
    download = addnodes.download_reference(
        "", nodes.Text("Download this chapter as a notebook"), reftarget=notebook.name
    )
    how = addnodes.pending_xref(
        "",
        nodes.inline("", "how to run it"),
        refdomain="std",
        reftype="ref",
        reftarget="how-to-run",
        refexplicit=True,
        refwarn=True,
    )
    line = nodes.paragraph("", "", download, nodes.Text(" · "), how)
    line["classes"].append("notebook-link")
    title.parent.insert(title.parent.index(title) + 1, line)


def setup(app: Sphinx) -> dict[str, bool]:
    # Before Sphinx collects what is to be downloaded.
    app.connect("doctree-read", add_link, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
