"""Write the docstrings of the torch half from those of the NumPy half, so that people edit one text.

The docstring of each public function, class and method in ``attn_tutor/numpy/FILE.py``, and that of the file, goes to
the same name in ``attn_tutor/torch/FILE.py``, with ``torch`` for ``np``. Arguments that torch alone has, such as
``device``, keep the lines that torch's docstring gives them, below the others. What only one half defines stays as it
is, and so does what both import from one place.

    python tools/mirror.py          # write
    python tools/mirror.py --check  # name what differs, and fail if anything does
"""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "attn_tutor"
IN_TORCH = {
    "np.array(": "torch.tensor(",
    "np.": "torch.",
    "attn_tutor.numpy": "attn_tutor.torch",
}
ARGS = re.compile(r"^( *)Args:\n(?:\1    .*\n)+", re.MULTILINE)
ENTRY = re.compile(r"^( +)(\w+): .*\n(?:\1 .*\n)*", re.MULTILINE)
Node = ast.Module | ast.ClassDef | ast.FunctionDef


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    differ = 0
    for source in sorted((PACKAGE / "numpy").rglob("*.py")):
        path = PACKAGE / "torch" / source.relative_to(PACKAGE / "numpy")
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        text, names = mirror(source.read_text(encoding="utf-8"), text)
        for name in names:
            print(f"{path.relative_to(PACKAGE.parent)}: {name}")
        differ += len(names)
        if names and not check:
            path.write_text(text, encoding="utf-8")
    if check and differ:
        raise SystemExit("These docstrings differ from those of the NumPy half.")


def mirror(numpy_text: str, torch_text: str) -> tuple[str, list[str]]:
    """The torch file with the docstrings of the NumPy file, and the names whose docstring this changes."""
    originals = dict(public(ast.parse(numpy_text)))
    numpy_lines = numpy_text.splitlines(keepends=True)
    lines, changed = torch_text.splitlines(keepends=True), []
    # From the end, so that line numbers above stay true.
    for name, node in reversed(list(public(ast.parse(torch_text)))):
        original = originals.get(name)
        if original is None or ast.get_docstring(original) is None:
            continue
        doc = docstring(original, numpy_lines)
        for numpy_word, torch_word in IN_TORCH.items():
            doc = doc.replace(numpy_word, torch_word)
        before = docstring(node, lines)
        doc = with_entries(doc, before, arguments(node) - arguments(original))
        if doc != before:
            lines[place(node)] = doc.splitlines(keepends=True)
            changed.append(name)
    return "".join(lines), changed[::-1]


def public(module: ast.Module) -> Iterator[tuple[str, Node]]:
    """The file, what its ``__all__`` lists, and the methods of its classes, as they stand in it."""
    listed: list[str] = []
    for node in module.body:
        match node:
            case ast.Assign([ast.Name("__all__")], ast.List() as names):
                listed = [
                    str(x.value) for x in names.elts if isinstance(x, ast.Constant)
                ]
                yield "the file", module
            case ast.ClassDef() | ast.FunctionDef() if node.name in listed:
                yield node.name, node
                for method in node.body if isinstance(node, ast.ClassDef) else []:
                    if isinstance(method, ast.FunctionDef):
                        yield f"{node.name}.{method.name}", method


def place(node: Node) -> slice:
    """The lines of the docstring; none, before the body, where there is no docstring."""
    first = node.body[0]
    stop = first.end_lineno if ast.get_docstring(node) is not None else first.lineno - 1
    return slice(first.lineno - 1, stop)


def docstring(node: Node, lines: list[str]) -> str:
    return "".join(lines[place(node)])


def arguments(node: Node) -> set[str]:
    """The arguments of a function, or of the constructor of a class."""
    if isinstance(node, ast.FunctionDef):
        return {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
    methods = [x for x in node.body if isinstance(x, ast.FunctionDef)]
    return {x for m in methods if m.name == "__init__" for x in arguments(m)}


def with_entries(doc: str, before: str, names: set[str]) -> str:
    """The docstring, with the entries for these arguments that stood there before at the end of its ``Args``."""
    section, old = ARGS.search(doc), ARGS.search(before)
    if section is None or old is None:
        return doc
    entries = [entry[0] for entry in ENTRY.finditer(old[0]) if entry[2] in names]
    return doc[: section.end()] + "".join(entries) + doc[section.end() :]


if __name__ == "__main__":
    main()
