"""Under the title of each notebook's page, a link that downloads its notebook, the command that runs it here, and links
that run it elsewhere.

Those to Colab and Binder come with the address of the repository: ``repository: url:`` in _config.yml, on GitHub. The
one to the site of `make lite` comes with that site's address, ``launch_buttons: jupyterlite_url:``.
"""

from pathlib import Path
from typing import Any

from book_pages import settings
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def add_link(app: Sphinx, doctree: nodes.document) -> None:
    notebook = Path(app.env.doc2path(app.env.docname))
    title = next(doctree.findall(nodes.title), None)
    if notebook.suffix != ".ipynb" or title is None:
        return
    up = "../" * app.env.docname.count("/")
    file = f"{app.env.docname.removeprefix('book/')}.ipynb"
    download = nodes.raw(
        "",
        f'<a href="{up}notebooks/{file}" download>Download this page as a notebook</a>, '
        f'or <a href="{up}notebooks/student/{file}" download>without its solutions</a>',
        format="html",
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
    command = nodes.literal("", "make live")
    here = [nodes.Text(" · to run it in this page: "), command]
    line = nodes.paragraph("", "", download, nodes.Text(" · "), how, *here)
    line["classes"].append("notebook-link")
    config = settings(Path(app.srcdir))
    path = f"{app.env.docname}.ipynb"
    for name, url in launch_links(config, path).items():
        line += [nodes.Text(" · "), nodes.reference("", name, refuri=url)]
    title.parent.insert(title.parent.index(title) + 1, line)


def launch_links(config: dict[str, Any], path: str) -> dict[str, str]:
    """Where a notebook can be run, by the words of the link."""
    links = {}
    if site := config.get("launch_buttons", {}).get("jupyterlite_url"):
        links["run it in the browser"] = f"{site}?path={path}"
    if url := config.get("repository", {}).get("url"):
        branch = config["repository"].get("branch", "main")
        start, _, name = url.removesuffix(".git").rstrip("/").partition("github.com/")
        if start != "https://" or name.count("/") != 1:
            raise ExtensionError(
                f"_config.yml: repository: url: is {url}; Colab and Binder need https://github.com/OWNER/NAME"
            )
        links |= {
            "Colab": f"https://colab.research.google.com/github/{name}/blob/{branch}/{path}",
            "Binder": f"https://mybinder.org/v2/gh/{name}/{branch}?urlpath=lab/tree/{path}",
        }
    return links


def describe_by_the_question(
    app: Sphinx, page: str, template: str, context: Any, doctree: nodes.document | None
) -> None:
    """sphinxext.opengraph takes a page's description from its first words: the question that opens it, and no more."""
    if doctree is None or not app.env.doc2path(page).endswith(".ipynb"):
        return
    for section in [*doctree.findall(nodes.section)][:1]:
        paragraphs = [x for x in section if isinstance(x, nodes.paragraph)]
        question = [x for x in paragraphs if not x["classes"]][:1]
        section.children = [section[0], *question]


def setup(app: Sphinx) -> dict[str, bool]:
    # Before Sphinx collects what is to be downloaded.
    app.connect("doctree-read", add_link, priority=400)
    app.connect("html-page-context", describe_by_the_question, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
