"""The search finds the book's words from the pages on the reader's disk, and says so when it finds nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(5000)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: said.type == "error" and faults.append(said.text))
    yield page
    assert faults == []
    page.close()


def search(page: Page, book: Path, words: str) -> list[str]:
    page.goto(f"{(book / 'search.html').as_uri()}?q={words}")
    page.locator("#search-results h2:text-is('Search Results')").wait_for(
        state="attached"  # the end of the search; the theme hides this title
    )
    links = page.locator("#search-results li a")
    return [str(link.get_attribute("href")) for link in links.all()]


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
    page: Page, book: Path, words: str, chapter: str
) -> None:
    found = search(page, book, words)
    assert any(link.startswith(f"book/{chapter}.html") for link in found[:10])
    page.locator(f"#search-results a[href^='book/{chapter}.html']").first.click()
    page.wait_for_url(f"**/book/{chapter}.html**")
    first = words.split("-")[0].lower()
    assert first in page.inner_text("article").lower()


def test_a_word_that_is_nowhere_is_said_to_be_nowhere(page: Page, book: Path) -> None:
    assert search(page, book, "zwqxvk") == []
    assert "did not match any" in page.inner_text("#search-results")
