"""What a wrong answer looks like beside the right one: said when it is none of the known wrong answers.

A symptom is a fact about the answer, with what it usually comes from. The one that explains most of what is wrong is
told.
"""

import numpy as np

from attn_tutor.check.calls import Case
from attn_tutor.check.symptoms import masks, numbers, shape, weights
from attn_tutor.check.symptoms.symptom import Answer, Finding, Symptoms

# The strongest first: of two that explain as much, the first is told.
SYMPTOMS = [
    *shape.EXACT, *shape.SYMPTOMS, *masks.SYMPTOMS, *weights.EXACT, *weights.SYMPTOMS,
    *numbers.CORNERS, *numbers.EXACT, *numbers.SYMPTOMS,
]  # fmt: skip
VAGUE = [*shape.VAGUE, *weights.VAGUE, *numbers.VAGUE]
PLAIN = [*shape.EXACT, *weights.EXACT, *numbers.EXACT]  # simpler than two mistakes


def strongest(answers: list[Answer]) -> tuple[Finding, Case] | None:
    """The symptom that explains most, with what is no number in the rest, and the smallest case that shows it."""
    for symptoms in (SYMPTOMS, VAGUE):
        found = _most_common(symptoms, answers)
        if found and 2 * _weight(found[1]) >= _weight(answers):
            (title, words), seen, shown = found
            rest = _most_common(numbers.CORNERS, [x for x in answers if x not in seen])
            words += f" Besides: {rest[0][1]}" if rest else ""
            return (title, words), shown.case
    return None


@np.errstate(all="ignore")
def one_for_all(answers: list[Answer], symptoms: Symptoms) -> Finding | None:
    """The symptom that all these answers show, of those that leave no room for chance if there are many numbers."""
    many = [x for x in answers if x.right.size > 4]
    for title, sight in symptoms if many else []:
        seen = list(map(sight, many))
        if all(seen):
            return title, str(seen[0])
    return None


@np.errstate(all="ignore")
def _most_common(symptoms: Symptoms, answers: list[Answer]) -> tuple[Finding, list[Answer], Answer] | None:  # fmt: skip
    """What is seen in most of the answers, in the words for the largest, these, and the smallest with such words."""
    found = []
    for title, sight in symptoms:
        seen: dict[str, list[tuple[str, Answer]]] = {}
        for x in answers:
            if words := sight(x):
                one = words if x.right.size == 1 else ""  # one factor for all
                seen.setdefault(one, []).append((words, x))
        for each in seen.values():
            told = each[-1][0]
            shown = next(x for words, x in each if words == told)
            found.append(((title, told), [x for _, x in each], shown))
    return max(found, key=lambda each: _weight(each[1]), default=None)


def _weight(answers: list[Answer]) -> int:
    """How much they tell: a large array more than a small one."""
    return sum(min(x.right.size, 30) for x in answers)
