"""A task for translators: numbers in English words, to be written in digits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

__all__ = [
    "NumberPairs",
    "decode_digits",
    "encode_words",
    "number_pairs",
    "number_words",
]

SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip  # a list of words reads as lines
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# A word's id is its place; 0 is the padding.
WORDS = ("", *SMALL, *TENS, "hundred", "thousand", "million", "and", "a")
IDS = {word: i for i, word in enumerate(WORDS) if word}
END = 10  # the ids of the digits are the digits themselves
DIGITS = 9  # of the longest numbers

# Kinds that a pair of (with "and", with "a" for a leading "one") may be in training; the fourth is held out.
FORMS = ((True, False), (False, False), (True, True))
UNSEEN_FORM = (False, True)


class NumberPairs(NamedTuple):
    """Numbers in words and in digits, as :func:`number_pairs` makes them.

    Args:
        words: ids of the words, 0 after the last, (b, n).
        lengths: number of words, (b,).
        digits: the digits, then 10 to the end, (b, T).
    """

    words: np.ndarray
    lengths: np.ndarray
    digits: np.ndarray


def number_words(number: int, *, with_and: bool = True, with_a: bool = False) -> str:
    """A number in English words.

    Args:
        number: 0 or more, at most nine digits.
        with_and: say "and" before the last two digits, as the British do.
        with_a: begin with "a" and not with "one" where that is said: a hundred, a thousand, a million.

    Returns:
        The words, with a space between any two.

    Raises:
        ValueError: the number is negative or too long.

    Example:
        >>> number_words(1_312_405)
        'one million three hundred and twelve thousand four hundred and five'
        >>> number_words(1_005, with_and=False, with_a=True)
        'a thousand five'
    """
    if not 0 <= number < 10**DIGITS:
        raise ValueError(
            f"number_words: number must be 0 or more and below 10^{DIGITS}, got {number}"
        )
    if number == 0:
        return "zero"
    words: list[str] = []
    for scale, name in ((10**6, "million"), (10**3, "thousand"), (1, "")):
        hundreds, rest = divmod(number // scale % 1000, 100)
        if hundreds:
            words += [SMALL[hundreds], "hundred"]
        if rest:
            if with_and and (hundreds or (words and scale == 1)):
                words.append("and")
            words += [SMALL[rest]] if rest < 20 else [TENS[rest // 10 - 2]]
            words += [SMALL[rest % 10]] if rest >= 20 and rest % 10 else []
        if name and (hundreds or rest):
            words.append(name)
    if with_a and words[0] == "one" and len(words) > 1:
        words[0] = "a"
    return " ".join(words)


def number_pairs(
    count: int, seed: int, *, held_out: bool = False, unseen_form: bool = False
) -> NumberPairs:
    """Random numbers of one to nine digits, with their words.

    Long ones are more frequent, as there are more of them, three of ten begin with a 1, and half have many zeros. One
    number in seven is held out: those that leave the remainder 3. So is one way to say numbers: with "a" and without
    "and".

    Args:
        count: how many.
        seed: of the random numbers.
        held_out: take only numbers that are held out, each once; otherwise none of them.
        unseen_form: take numbers with a place for both words, and say them in the way that is held out; otherwise each
            is said in one of the three other ways, at random.

    Returns:
        Arrays that training and tests take.

    Example:
        >>> pairs = number_pairs(2, seed=0)
        >>> pairs.lengths.tolist(), pairs.digits.shape
        ([5, 11], (2, 10))
    """
    rng = np.random.default_rng(seed)
    numbers: list[int] = []
    sentences: list[str] = []
    taken: set[int] = set()
    while len(numbers) < count:
        length = rng.integers(1, DIGITS + 1, 2).max()
        figures = rng.integers(0, 10, length)
        if length > 1:
            figures[0] = int(10 ** rng.random())  # small ones more often, as in life
        if rng.random() < 0.5:
            figures[1:] *= rng.integers(0, 2, length - 1)
        number = int(figures @ 10 ** np.arange(length)[::-1])
        form = UNSEEN_FORM if unseen_form else FORMS[rng.integers(len(FORMS))]
        if (number % 7 == 3) != held_out or (held_out and number in taken):
            continue
        if unseen_form and not _tells(number):
            continue
        taken.add(number)
        numbers.append(number)
        sentences.append(number_words(number, with_and=form[0], with_a=form[1]))
    words, lengths = encode_words(sentences)
    digits = np.full((count, DIGITS + 1), END)
    for row, number in zip(digits, numbers, strict=True):
        text = str(number)
        row[: len(text)] = list(map(int, text))
    return NumberPairs(words, lengths, digits)


def _tells(number: int) -> bool:
    """Whether it has a place for "a" and one for "and", so that its form is seen."""
    words = number_words(number, with_a=True)
    return words.startswith("a ") and " and " in words


def encode_words(sentences: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of words, and how many there are in each sentence.

    Args:
        sentences: numbers in words.

    Returns:
        Ids, 0 after the last word, (b, n), and lengths, (b,).

    Raises:
        ValueError: a sentence is empty, or a word is not known.

    Example:
        >>> ids, lengths = encode_words(["two hundred and five", "nine"])
        >>> ids.tolist(), lengths.tolist()
        ([[3, 29, 32, 6], [10, 0, 0, 0]], [4, 1])
    """
    rows = []
    for sentence in sentences:
        words = sentence.split()
        unknown = [word for word in words if word not in IDS]
        if unknown or not words:
            raise ValueError(
                f"encode_words: {unknown[0]!r} is not a word of numbers below 10^{DIGITS}: {', '.join(IDS)}"
                if unknown
                else "encode_words: a sentence is empty"
            )
        rows.append([IDS[word] for word in words])
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.zeros((len(rows), max(lengths, default=0)), dtype=np.int64)
    for into, row in zip(ids, rows, strict=True):
        into[: len(row)] = row
    return ids, lengths


def decode_digits(ids: np.ndarray) -> list[str]:
    """Digits as text, up to the end of sequence.

    Args:
        ids: digits, and 10 for the end, (b, T).

    Returns:
        A text for each row; one without an end is taken whole.

    Example:
        >>> decode_digits(np.array([[2, 0, 5, 10], [9, 10, 3, 3]]))
        ['205', '9']
    """
    texts = []
    for row in ids.tolist():
        stop = row.index(END) if END in row else len(row)
        texts.append("".join(map(str, row[:stop])))
    return texts
