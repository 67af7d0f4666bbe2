"""``python -m attn_tutor.search``: which sections of the book answer a question."""

import argparse
import sys
from collections.abc import Sequence

from attn_tutor.search import search


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attn_tutor.search",
        description="Find the sections of the book that are nearest in meaning to a question, with a small published "
        "model. The number before each is the cosine between the two: 1 is the same, 0 nothing in common.",
    )
    parser.add_argument("question", nargs="+", help="words or a sentence, in English")
    parser.add_argument(
        "-n", type=int, default=5, help="how many sections (%(default)s)"
    )
    asked = parser.parse_args(arguments)
    if asked.n < 1:
        parser.error(f"-n must be 1 or more, got {asked.n}")
    try:
        found = search(" ".join(asked.question), asked.n)
    except ImportError as error:  # what is missing, and how to install it
        parser.exit(1, f"{error}\n")
    for cosine, section in found:
        place = f"book/{section.page}"
        print(f"{cosine:5.2f}  {section.chapter} › {section.title}  ({place})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
