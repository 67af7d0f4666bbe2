"""Files that the reader writes into: replaced in one step, and never over a text that the writer has not seen."""

import json
import os
import tempfile
from pathlib import Path


class Changed(Exception):
    """The text on disk is not the one that the writer began with: another window, or an editor, has changed it."""

    def __init__(self, there: str | None) -> None:
        super().__init__("this text was changed elsewhere")
        self.there = there


def write(path: Path, text: str) -> None:
    """Whoever reads the file finds the old text or the new one, whole, whatever fails in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


class Texts:
    """Texts by name in one JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, str]:
        try:
            return {**json.loads(self.path.read_text(encoding="utf-8"))}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{self.path.name} is damaged, mend or delete it ({error})"
            ) from None

    def put(self, name: str, text: str | None, was: str | None) -> None:
        """Keep a text in place of the one that was there, as the writer believes; None is no text."""
        texts = self.read()
        if texts.get(name) not in (was, text):
            raise Changed(texts.get(name))
        texts.pop(name, None)
        if text is not None:
            texts[name] = text
        write(self.path, json.dumps(texts, ensure_ascii=False, indent=1) + "\n")
