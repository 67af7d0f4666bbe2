"""Write the notebooks without their solutions into student/: python tools/student_notebooks.py, once the book is built

A notebook that is there already is the learner's: it stays as it is. What the book's models have learnt comes along.
"""

import json
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "_build" / "html" / "notebooks" / "student"
TRAINED = ROOT / "book" / "trained"
STUDENT = ROOT / "student"
PLACE = re.compile(r'"(?=trained/)|makedirs\("(?=trained")')


def main() -> None:
    kept = []
    for page in sorted(BUILT.rglob("*.ipynb")):
        place = page.relative_to(BUILT)
        own, text = STUDENT / place, notebook(page)
        if not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(text, encoding="utf-8")
        elif own.read_text(encoding="utf-8") != text:
            kept.append(place.as_posix())
    for weights in TRAINED.iterdir():
        if not (own := STUDENT / "trained" / weights.name).exists():
            own.parent.mkdir(exist_ok=True)
            shutil.copy(weights, own)
    print(f"The notebooks are in {STUDENT}.")
    if kept:
        print("These differ from the book's and were left as they are; to get one anew, rename yours:")  # fmt: skip
        print("".join(f"  {name}\n" for name in kept), end="")


def notebook(page: Path) -> str:
    """As it is downloaded, but further pages share one folder of trained weights with the main pages."""
    found = json.loads(page.read_text(encoding="utf-8"))
    if page.parent != BUILT:
        for cell in found["cells"]:
            if cell["cell_type"] == "code":
                cell["source"] = [
                    PLACE.sub(r"\g<0>../", line) for line in cell["source"]
                ]
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    main()
