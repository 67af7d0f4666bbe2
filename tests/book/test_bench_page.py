"""The book's page of benchmarks is made of the committed results."""

import json

import benchmarks


def test_the_books_page_is_that_of_the_committed_results(monkeypatch):
    monkeypatch.setattr(benchmarks, "draw", lambda *_: None)
    results = sorted(benchmarks.RESULTS.glob("*.json"))
    assert results
    page = benchmarks.PAGE.read_text(encoding="utf-8")
    for path in results:
        result = json.loads(path.read_text(encoding="utf-8"))
        assert benchmarks.section(path.stem, result) in page
        assert result["machine"]["processor"] and result["versions"]["torch"]
