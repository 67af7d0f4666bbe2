"""What a page says of itself where somebody shares a link to it: Open Graph tags, and a description for search engines.

The description is the page's opening, to the end of a sentence. Addresses must be absolute there, so the page's own
and the picture's appear only when ``html.baseurl`` in ``_config.yml`` says where the book is published.
"""

import re
from html import escape, unescape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LONGEST = 250  # letters; what is longer is cut off where it is shown
PICTURE = ("_static/card.png", "Nine squares, the weights of causal attention")


def add_tags(
    app: Sphinx,
    page: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    said = {
        "og:title": plain(context.get("title", "")),
        "og:type": "website" if page == app.config.root_doc else "article",
        "og:site_name": app.config.html_title,
        "og:locale": "en_GB",
    }
    opening = description(doctree) if doctree else ""
    if opening:
        said["og:description"] = opening
    if base := app.config.html_baseurl.rstrip("/"):
        said["og:url"] = f"{base}/{page}.html"
        said["og:image"], said["og:image:alt"] = f"{base}/{PICTURE[0]}", PICTURE[1]
    tags = [f'<meta property="{key}" content="{escape(said[key])}">' for key in said]
    if opening:
        tags.append(f'<meta name="description" content="{escape(opening)}">')
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def plain(title: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", title))


def description(doctree: nodes.document) -> str:
    """The sentences of the page's first paragraph, as many as fit."""
    section = next(doctree.findall(nodes.section), nodes.section())
    for paragraph in section.children:
        # The line below a chapter's title, which has a class, is no opening.
        if isinstance(paragraph, nodes.paragraph) and not paragraph["classes"]:
            opening = ""
            for sentence in re.split(r"(?<=[.?!])\s+", paragraph.astext()):
                if opening and len(opening) + len(sentence) > LONGEST:
                    break
                opening = f"{opening} {sentence}".strip()
            return " ".join(opening.split())
    return ""


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
