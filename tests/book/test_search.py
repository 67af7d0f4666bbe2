"""The search finds the book's words from the pages on the reader's disk, and says so when it finds nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

Find = Callable[[str], list[tuple[str, str]]]


@pytest.fixture(scope="module")
def page(visit: Callable[..., Any], book: Path) -> Iterator[Page]:
    with visit(book / "search.html") as page:
        yield page


@pytest.fixture
def find(page: Page, book: Path) -> Find:
    """Title and address of each page found, best first."""

    def search(words: str) -> list[tuple[str, str]]:
        page.goto(f"{(book / 'search.html').as_uri()}?q={words}")
        page.locator("#search-results h2:text-is('Search Results')").wait_for(
            state="attached"  # the end of the search; the theme hides this title
        )
        links = page.locator("#search-results li a").evaluate_all(
            "links => links.map(link => [link.textContent, link.getAttribute('href')])"
        )
        return [(title, address) for title, address in links]

    return search


@pytest.mark.parametrize(
    ("words", "chapter"),
    [
        ("Nadaraya", "01_queries_keys_values"),
        ("bilinear", "02_scoring_functions"),
        ("jacobian", "03_masked_softmax"),
        ("grouped-query", "05_multi_head_attention"),
        ("rotary", "06_positional_encoding"),
        ("backpropagation", "07_gradients"),
        ("alignment", "08_translator"),
        ("perplexity", "09_transformer"),
        ("tracemalloc", "10_fast_attention"),
    ],
)
def test_a_word_leads_to_its_chapter(
    book: Path, find: Find, words: str, chapter: str
) -> None:
    found = [address.partition("#")[0] for _, address in find(words)]
    assert f"book/{chapter}.html" in found[:10]
    page = (book / "book" / f"{chapter}.html").read_text(encoding="utf-8")
    assert words.split("-")[0].lower() in page.lower()


def test_what_is_found_opens(page: Page, find: Find) -> None:
    (_, address), *_ = find("masked softmax")
    page.locator("#search-results li a").first.click()
    page.wait_for_url(f"**/{address}**")
    assert "masked softmax" in page.inner_text("article h1").lower()


def test_titles_come_first_and_then_the_glossary_by_its_words(find: Find) -> None:
    titles = [title for title, _ in find("softmax")]
    assert titles[0] == "3. Masked softmax"
    assert titles[1] == "Glossary: softmax"
    longer = {"Glossary: online softmax", "Glossary: masked softmax"}
    assert longer <= set(titles[2:6])
    assert "Glossary" not in titles[:10]


ASKED = {
    "flash attention": "10_fast", "rope": "06_pos", "gqa": "10_fast", "kv cache": "10_fast", "pad token": "03_masked",
    "nan after softmax": "03_masked", "loss is nan": "failure", "inverted mask": "03_masked",
    "causal mask": "03_masked", "d_k": "04_self", "sqrt": "failure", "why divide by sqrt d": "02_scoring",
    "attention sink": "03_masked", "teacher forcing": "08_", "alibi": "06_pos", "sliding window": "10_fast",
    "cross attention": "04_self",
    "einsum": "05_multi", "beam search": "08_", "is_causal": "failure", "key_padding_mask": "failure",
    "masked_fill": "03_masked", "out of memory": "10_fast", "future tokens": "04_self", "bahdanau": "02_scoring",
    "look-ahead": "glossary", "byte-pair encoding": "09_", "vanishing gradient": "02_scoring", "float16": "failure",
}  # fmt: skip  # what people type, and the start of the page that answers it


@pytest.mark.full
@pytest.mark.parametrize("words", ASKED)
def test_what_people_type_finds_its_page_in_the_first_three(
    find: Find, words: str
) -> None:
    first = [address for _, address in find(words)][:3]
    assert any(address.startswith(f"book/{ASKED[words]}") for address in first), first


@pytest.mark.parametrize(
    "name", ["RoPE", "flash attention", "FlashAttention", "KV cache"]
)
def test_other_names_of_a_thing_are_found(find: Find, name: str) -> None:
    anchor = "term-" + name.replace(" ", "-")
    assert find(name)[0] == (f"Glossary: {name}", f"book/glossary.html#{anchor}")


def test_a_word_that_is_nowhere_is_said_to_be_nowhere(page: Page, find: Find) -> None:
    assert find("zwqxvk") == []
    assert "did not match any" in page.inner_text("#search-results")
