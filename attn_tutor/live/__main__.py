"""``python -m attn_tutor.live``, in the folder of the book: serve it, and open it in the browser. Ctrl-C ends it."""

import os
import sys
from pathlib import Path

HELP = "Run this in the book's own folder, where `make book` has been run, or there just `make live`."


def main() -> None:
    if not Path("_build/html/book/intro.html").is_file():
        sys.exit(f"There is no built book here, in {Path.cwd()}. {HELP}")
    # Nobody's own settings of Jupyter may open this server to others.
    os.environ["JUPYTER_NO_CONFIG"] = "1"
    # Jupyter's checks of international addresses, of which it meets none here, would take half of the start.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # so that its import fails
    try:
        from attn_tutor.live.app import Live
    except ModuleNotFoundError as missing:
        sys.exit(
            f'{missing.name} is missing: pip install "attn-tutor[book]", or `make live`.'
        )
    Live.launch_instance()


if __name__ == "__main__":
    main()
