"""The Markdown of the pages as tokens, by the parser that reads the pages themselves."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from markdown_it.token import Token

FOLDED = ("{recall}", "{solution-start}")


@cache
def tokens(source: str) -> list[Token]:
    return parser().parse(source)


@cache
def parser() -> Any:
    # Imports here, as they take longer than all else that a test of a page imports.
    from book_pages import settings
    from markdown_it.renderer import RendererHTML
    from myst_parser.config.main import MdParserConfig
    from myst_parser.parsers.mdit import create_md_parser

    extensions = {*settings()["parse"]["myst_enable_extensions"]}
    return create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)


def shown(source: str) -> Iterator[Token]:
    """What a reader sees without opening a box: the tokens of the text, and of the boxes in it."""
    for token in tokens(source):
        yield token
        if token.type == "colon_fence":
            _, _, title = token.info.partition("}")
            lines = token.content.split("\n")
            options = [line for line in lines if line.startswith(":") and line[1:2] != ":"]  # fmt: skip
            if token.info.startswith(FOLDED) or ":class: dropdown" in options:
                continue
            inside = "\n".join(line for line in lines if line not in options)
            yield from shown(f"{title}\n\n{inside}")


def words(token: Token) -> str:
    """The words of a paragraph: no formulas, pictures, addresses, or names of roles."""
    said = ""
    for child in token.children or []:
        if child.type in ("text", "code_inline"):
            said += child.content
        elif child.type == "myst_role":
            said += child.content.partition("<")[0] or child.content
        elif child.type in ("softbreak", "hardbreak"):
            said += " "
    return said
