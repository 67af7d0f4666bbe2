"""Numbers in words: an independent reader gets the number back; what is held out is in no training pair."""

import re

import numpy as np
import pytest

from attn_tutor.data import decode_digits, encode_words, number_pairs, number_words
from attn_tutor.data.numbers import END, WORDS

# Written by hand, and not taken from the package.
ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
        "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]  # fmt: skip  # words read as lines
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
VALUES = {word: i for i, word in enumerate(ONES, 1)} | {"a": 1}
VALUES |= {word: 10 * i for i, word in enumerate(TENS, 2)}


def number_of(words):
    """Reads as people do: adds up, multiplies at hundred, and closes a group at thousand and million."""
    total = group = 0
    for word in words.split():
        if word == "hundred":
            group *= 100
        elif word in ("thousand", "million"):
            total, group = total + group * {"thousand": 1000}.get(word, 10**6), 0
        elif word not in ("and", "zero"):
            group += VALUES[word]
    return total + group


@pytest.mark.parametrize(
    ("number", "options", "words"),
    [
        (0, {}, "zero"),
        (7, {}, "seven"),
        (1, {"with_a": True}, "one"),
        (13, {}, "thirteen"),
        (40, {}, "forty"),
        (99, {}, "ninety nine"),
        (100, {}, "one hundred"),
        (100, {"with_a": True}, "a hundred"),
        (110, {}, "one hundred and ten"),
        (110, {"with_and": False}, "one hundred ten"),
        (1_005, {}, "one thousand and five"),
        (1_000_000, {"with_a": True}, "a million"),
        (1_000_020, {}, "one million and twenty"),
        (1_020_000, {}, "one million twenty thousand"),
        (101_101, {"with_a": True}, "a hundred and one thousand one hundred and one"),
        (21_000, {"with_a": True}, "twenty one thousand"),
        (312_405, {}, "three hundred and twelve thousand four hundred and five"),
        (312_405, {"with_and": False}, "three hundred twelve thousand four hundred five"),
    ],
)  # fmt: skip  # a table reads as lines
def test_words(number, options, words):
    assert number_words(number, **options) == words


def test_the_longest():
    group = "nine hundred and ninety nine"
    words = number_words(999_999_999)
    assert words == f"{group} million {group} thousand {group}"
    assert len(words.split()) == 17


@pytest.mark.parametrize("with_and", [True, False])
@pytest.mark.parametrize("with_a", [True, False])
def test_every_form_is_read_back(with_and, with_a):
    rng = np.random.default_rng(0)
    zeros = rng.integers(0, 10, (2000, 9)) * rng.integers(0, 2, (2000, 9))
    numbers = [*range(12_000), *(zeros @ 10 ** np.arange(9)).tolist()]
    said = [number_words(n, with_and=with_and, with_a=with_a) for n in numbers]
    assert [number_of(words) for words in said] == numbers
    assert not with_and or not any("hundred one" in words for words in said)
    assert ("and" in " ".join(said).split()) is with_and
    assert any(words.startswith("a ") for words in said) is with_a


@pytest.mark.parametrize("number", [-1, 10**9])
def test_numbers_out_of_range(number):
    with pytest.raises(ValueError, match=f"below 10\\^9, got {number}"):
        number_words(number)


def texts(pairs):
    return [" ".join(WORDS[i] for i in row if i) for row in pairs.words]


def has_unseen_form(words):
    """With "a" and without "and", where there is a place for it."""
    number = number_of(words)
    places = "and" in number_words(number).split()
    return words.startswith("a ") and places and "and" not in words.split()


def test_pairs_belong_together():
    pairs = number_pairs(500, seed=3)
    words, numbers = texts(pairs), [int(x) for x in decode_digits(pairs.digits)]
    assert [number_of(x) for x in words] == numbers
    assert [len(x.split()) for x in words] == pairs.lengths.tolist()
    assert pairs.words.shape == (500, pairs.lengths.max())
    assert pairs.digits.shape == (500, 10)
    assert {len(str(number)) for number in numbers} == set(range(1, 10))
    assert np.mean([str(n).count("0") > 2 for n in numbers]) > 0.15


def test_what_is_held_out_is_never_seen():
    train = number_pairs(3000, seed=0)
    test = number_pairs(300, seed=1, held_out=True)
    unseen = number_pairs(300, seed=1, held_out=True, unseen_form=True)
    numbers = [[int(x) for x in decode_digits(p.digits)] for p in (train, test, unseen)]
    assert all(n % 7 != 3 for n in numbers[0])
    assert all(n % 7 == 3 for n in numbers[1] + numbers[2])
    assert len(set(numbers[1])) == len(set(numbers[2])) == 300
    assert not any(map(has_unseen_form, texts(train) + texts(test)))
    assert all(map(has_unseen_form, texts(unseen)))
    with_a = [x for x in texts(train) if x.startswith("a ")]
    with_one = [x for x in texts(train) if x.startswith("one ")]
    assert min(len(with_a), len(with_one)) > 50
    for said in (with_a, with_one):
        assert sum(" and " in x for x in said) > 20
    assert sum(" and " not in x for x in with_one) > 20


@pytest.mark.slow
def test_tens_of_thousands_of_distinct_pairs():
    pairs = number_pairs(40_000, seed=0)
    assert (
        len(set(zip(texts(pairs), decode_digits(pairs.digits), strict=True))) > 30_000
    )


def test_the_same_seed_gives_the_same_pairs():
    one, same, other = (number_pairs(50, seed) for seed in (4, 4, 5))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert texts(one) != texts(other)


def test_codes_come_back():
    sentences = ["two hundred and five", "nine", "a million"]
    ids, lengths = encode_words(sentences)
    assert [" ".join(WORDS[i] for i in row if i) for row in ids] == sentences
    assert (ids > 0).sum(1).tolist() == lengths.tolist() == [4, 1, 2]
    assert decode_digits(np.array([[1, 0, END, 5], [END, 3, 3, 3], [0, 7, 0, 7]])) == [
        "10",
        "",
        "0707",
    ]
    ids, lengths = encode_words([])
    assert ids.shape == (0, 0) and lengths.shape == (0,)


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (
            "two hundred und five",
            "'und' is not a word of numbers below 10^9: zero, one",
        ),
        ("twenty-five", "'twenty-five' is not a word"),
        (" ", "a sentence is empty"),
    ],
)
def test_unknown_words(sentence, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        encode_words(["five", sentence])
