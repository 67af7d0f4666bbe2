"""Each page loads the scripts of the figures that move on it, and no others.

The figure ``<attn-NAME>`` is made by ``_static/attn-NAME.js``. What that needs besides the shared scripts, its first
comment names: "Needs attn-A.js, attn-B.js: …". They are classic scripts, deferred: browsers refuse modules from file://.

``{state}`at width 512 <scale--power-9>` `` is a link that puts a figure of the page into a state, in the words of the
figure's own "Link to this state".
"""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import ReferenceRole

STATIC = Path(__file__).resolve().parents[1] / "_static"
SHARED = ("attn-core.js", "attn-element.js", "attn-task.js")
TAG = re.compile(r"<attn-([a-z]+)>")


def figures() -> list[str]:
    """The names of all figures that move."""
    made = re.compile(r'customElements\.define\("attn-([a-z]+)"')
    texts = (path.read_text("utf-8") for path in sorted(STATIC.glob("attn-*.js")))
    return [name for text in texts for name in made.findall(text)]


def scripts(*names: str) -> list[str]:
    """What these figures need, each once, in the order in which it must run."""
    needed = [*SHARED] if names else []
    for name in names:
        text = (STATIC / f"attn-{name}.js").read_text("utf-8")
        says = re.search(r"Needs (attn-[^:]*):", text.partition("*/")[0])
        needed += re.findall(r"attn-[\w-]+\.js", says[1]) if says else []
        needed.append(f"attn-{name}.js")
    return [*dict.fromkeys(needed)]


def add_scripts(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    names = dict.fromkeys(TAG.findall(context.get("body", "")))
    for script in scripts(*names):
        app.add_js_file(script, loading_method="defer")


class State(ReferenceRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        address = f"#attn-{self.target}"
        link = nodes.reference(self.rawtext, self.title, refuri=address, internal=True)
        link["classes"].append("attn-state")
        return [link], []


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("state", State())
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
