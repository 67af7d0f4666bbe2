"""The search finds what people type among the sections on the reader's disk, quotes it, or says that there is none."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

Find = Callable[[str], list[tuple[str, str]]]
SEARCH = """query => {
    document.getElementById("search-results").replaceChildren();
    Search.performSearch(query);
    const links = [...document.querySelectorAll("#search-results li > a")];
    return links.map(link => [link.textContent, link.getAttribute("href")]);
}"""  # what the page itself does with the words in its address


@pytest.fixture(scope="module")
def page(visit: Callable[..., Any], book: Path) -> Iterator[Page]:
    with visit(book / "search.html") as page:
        yield page


@pytest.fixture
def find(page: Page) -> Find:
    """Title and address of the best section of each page found, best first."""
    return lambda words: [tuple(found) for found in page.evaluate(SEARCH, words)]


ASKED = {
    "flash attention": "10_fast", "rope": "06_pos", "gqa": "10_fast", "kv cache": "10_fast", "pad token": "03_masked",
    "nan after softmax": "03_masked", "loss is nan": "failure", "inverted mask": "03_masked",
    "causal mask": "03_masked", "d_k": "02_scoring", "sqrt": "failure", "why divide by sqrt d": "02_scoring",
    "attention sink": "03_masked", "teacher forcing": "08_", "alibi": "06_pos", "sliding window": "13_",
    "cross attention": "08_translator/cross",
    "einsum": "05_multi", "beam search": "08_", "is_causal": "failure", "key_padding_mask": "failure",
    "masked_fill": "03_masked", "out of memory": "10_fast", "future tokens": "04_self", "bahdanau": "02_scoring",
    "look-ahead": "glossary", "byte-pair encoding": "09_", "vanishing gradient": "02_scoring", "float16": "10_",
    # Written before there were weights in book/_static/search.js to choose; they were in sight while these were chosen.
    "multi-query attention": "05_multi", "speculative decoding": "13_", "yarn": "06_pos", "tensor parallel": "12_many",
    "ring attention": "12_many", "latent attention": "13_", "quantize kv cache": "13_", "linear attention": "13_",
    "logit lens": "11_real", "top-p": "08_", "why multiple heads": "05_multi", "softmax backward": "07_",
    "attention vs rnn": "04_self", "batch of different lengths": "03_masked", "what are q k v": "01_",
    # With a slip, a hyphen too few or too many, and what the book leaves out.
    "sofmax": "03_masked", "atention": "01_", "warmup": "09_", "transfomer": "09_", "perplexty": "09_",
    "multihead": "05_multi", "positonal encoding": "06_pos", "selfattention": "04_self", "quatization": "13_",
    "flashatention": "10_fast", "batch of diferent lengths": "03_masked", "gradient decent": "glossary",
    "embeding": "glossary", "quantization": "13_",
    "what is attention": "01_", "mask polarity": "notation", "what is a query": "01_", "rotary embedding": "06_pos",
    "attention is all you need": "04_self", "how to run on gpu": "intro", "vision transformer": "where_next",
    "LoRA": "where_next", "mixture of experts": "where_next", "diffusion": "where_next", "fine-tuning": "where_next",
    # An engineer at work.
    "torch.compile": "api_torch", "torch.export": "api_torch", "vmap": "api_torch", "autocast": "api_torch",
    "attention weights": "glossary", "extract attention weights": "api_torch", "record_weights": "api_torch",
    "visualize attention": "api_torch", "cache cross-attention": "api_torch", "rope with kv cache": "api_torch",
    "save and load weights": "api_torch", "encoder decoder mask": "08_translator/cross",
    "mask with kv cache": "api_torch",
    "flex attention": "10_fast", "post-norm": "09_", "left padding": "failure", "packed sequences": "13_",
    "gpt-oss sink": "03_masked_softmax/softmax_up_close", "sink logits": "03_masked_softmax/softmax_up_close",
    "batch_first": "failure", "state dict from nn.MultiheadAttention": "api_torch", "half-split rotary": "failure",
    "rotate_half": "failure", "label smoothing": "glossary", "weight tying": "glossary", "softcap": "glossary",
    "gradient checkpointing": "glossary", "mixed precision": "10_", "n_kv_heads": "05_multi",
    "gradient accumulation": "failure", "causal mask with padding mask": "03_masked",
    "smollm2": "api_models", "distributed training": "api_distributed", "scaled_dot_product_attention slow": "failure",
}  # fmt: skip  # what people type, and the start of the page that answers it


def test_what_people_type_finds_its_page_among_the_first_three(find: Find) -> None:
    found = {words: [address for _, address in find(words)[:3]] for words in ASKED}
    missed = {
        words
        for words, page in ASKED.items()
        if not any(address.startswith(f"book/{page}") for address in found[words])
    }
    assert not missed, {words: found[words] for words in missed}


@pytest.mark.parametrize(
    ("words", "chapter"),
    [
        ("Nadaraya", "01_queries_keys_values"),
        ("bilinear", "02_scoring_functions"),
        ("jacobian", "03_masked_softmax/softmax_up_close"),
        ("grouped-query", "05_multi_head_attention/engineers"),
        ("rotary", "06_positional_encoding"),
        ("backpropagation", "07_gradients"),
        ("alignment", "08_translator"),
        ("perplexity", "09_transformer"),
        ("roofline", "10_fast_attention"),
    ],
)
def test_a_word_leads_to_its_chapter(
    book: Path, find: Find, words: str, chapter: str
) -> None:
    found = [address.partition("#")[0] for _, address in find(words)]
    assert f"book/{chapter}.html" in found[:10]
    page = (book / "book" / f"{chapter}.html").read_text(encoding="utf-8")
    assert words.split("-")[0].lower() in page.lower()


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("softmax", "softmax"),
        ("RoPE", "rotary encoding, RoPE, rotary embedding"),
        ("flash attention", "FlashAttention, flash attention"),
        ("FlashAttention", "FlashAttention, flash attention"),
        ("attention sinks", "attention sink"),
        ("sofmax", "softmax"),
        ("atention", "attention"),
        ("KV cache", "key–value cache, KV cache"),
    ],
)
def test_the_glossary_is_first_to_say_what_a_term_means(
    find: Find, name: str, entry: str
) -> None:
    (title, address), *others = find(name)
    assert title == f"Glossary › {entry}"
    assert address.startswith("book/glossary.html#term-")
    assert not [address for _, address in others if "glossary" in address]


def test_the_cache_is_where_it_is_kept_and_where_it_is_cut(find: Find) -> None:
    pages = [address.split("/")[1] for _, address in find("kv cache")[:3]]
    assert pages == ["glossary.html#term-keyvalue-cache", "13_cheaper_memory.html", "10_fast_attention"]  # fmt: skip


def test_by_any_name_of_a_term_the_same_is_found(find: Find) -> None:
    assert find("RoPE") == find("rotary encoding")


def test_a_function_leads_to_its_page_of_the_package(find: Find) -> None:
    anchor = "book/api_numpy.html#attn_tutor.numpy.causal_mask"
    assert find("causal_mask")[0] == ("attn_tutor.numpy › causal_mask", anchor)


def test_every_section_that_can_be_found_is_on_its_page(page: Page, book: Path) -> None:
    """Each with an anchor, and the chapters' prose, formulas included, is there to be quoted."""
    pages = page.evaluate("PAGES")
    for name, found in pages.items():
        html = (book / f"{name}.html").read_text(encoding="utf-8")
        missing = [x["id"] for x in found["sections"] if f'id="{x["id"]}"' not in html]
        assert not missing, name
    (root,) = (
        x for x in pages["book/02_scoring_functions"]["sections"] if "√d" in x["title"]
    )
    assert r"\(\sqrt d\)" in root["prose"]


def test_words_of_which_one_is_nowhere_find_the_others(find: Find) -> None:
    assert find("zwqxvk tracemalloc") == find("tracemalloc")


def test_a_word_that_is_nowhere_is_said_to_be_nowhere(page: Page, find: Find) -> None:
    assert find("zwqxvk") == []
    assert "did not match any" in page.inner_text("#search-results")


def test_results_come_as_one_types(page: Page) -> None:
    page.locator("main input[name=q]").press_sequentially("epanech")
    expect(page.locator("#search-results li > a").first).to_contain_text(
        "epanechnikov_kernel"
    )


def test_what_is_found_is_quoted_with_its_words_marked_and_opens(
    page: Page, book: Path
) -> None:  # the last, since it leaves the page
    page.goto(f"{(book / 'search.html').as_uri()}?q=why divide by sqrt d")
    first = page.locator("#search-results li").first
    first.locator(".context mjx-container").first.wait_for()
    assert "divide them by" in first.locator(".context").first.inner_text()
    marked = first.locator(".highlighted").all_inner_texts()
    assert marked == ["Divide", "divide"]  # in the title and the sentence; not "why"
    first.locator("a").first.click()
    chapter = "**/book/02_scoring_functions.html#divide-by-d"
    page.wait_for_url(chapter, wait_until="commit")
