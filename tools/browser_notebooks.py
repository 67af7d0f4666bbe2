"""The notebooks as they run in the browser: NumPy is there, torch is not, and the cells that need it say so."""

import ast
import dis
from types import CodeType
from typing import Any

Cell = dict[str, Any]

WELCOME = """*You read this chapter in the browser, which has NumPy and no torch. Run the next cell first: it fetches
the package. Cells that need torch stand here as text, with what they give elsewhere.*"""
INSTALL = "%pip install -q attn-tutor matplotlib"
NEEDS_TORCH = "*This cell needs torch, which the browser does not have.*"
KERNEL = {"display_name": "Python (Pyodide)", "language": "python", "name": "python"}


def for_browser(notebook: Cell) -> Cell:
    """The notebook with the package installed first, and with text in place of each cell that needs torch."""
    lost: set[str] = set()  # names that need torch
    cells = [markdown("welcome", WELCOME), code("install", INSTALL)]
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        source = "".join(cell["source"])
        imports = [line for line in ast.parse(source).body if is_import(line)]
        torch = [line for line in imports if needs_torch(line)]
        lost |= {name for line in torch for name in made(line)}
        rest = without(source, torch)
        program = compile(rest, cell["id"], "exec")
        if reads(program) & lost or (torch and not rest.strip()):
            others = [ast.unparse(line) for line in imports if line not in torch]
            lost |= writes(program) - {n for line in imports for n in made(line)}
            cells.append(as_text(cell, source))
            cells += [code(cell["id"] + "-imports", "\n".join(others))] * bool(others)
        else:
            lost -= writes(program)
            cells.append(cell | code(cell["id"], rest))
    about = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return notebook | {"cells": cells, "metadata": about}


def is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


def needs_torch(statement: ast.stmt) -> bool:
    """Whether an import loads torch or the half that is written in it."""
    names = [name.name for name in statement.names]  # type: ignore[attr-defined]  # an import
    origin = getattr(statement, "module", None)
    modules = [f"{origin}.{name}" for name in names] if origin else names
    return any(f"{m}.".startswith(("torch.", "attn_tutor.torch.")) for m in modules)


def made(statement: ast.stmt) -> set[str]:
    return writes(compile(ast.Module([statement], []), "import", "exec"))


def without(source: str, statements: list[ast.stmt]) -> str:
    gone = {n for s in statements for n in range(s.lineno, (s.end_lineno or 0) + 1)}
    kept = [x for n, x in enumerate(source.splitlines(), 1) if n not in gone]
    return "\n".join(kept).strip("\n")


def writes(program: CodeType) -> set[str]:
    """The names that a cell binds."""
    found = dis.get_instructions(program)
    return {step.argval for step in found if step.opname == "STORE_NAME"}


def reads(program: CodeType) -> set[str]:
    """The names that a cell takes from the cells above it."""
    found: set[str] = set()
    bound: set[str] = set()
    for step in dis.get_instructions(program):
        if step.opname == "STORE_NAME":
            bound.add(step.argval)
        elif step.opname == "LOAD_NAME" and step.argval not in bound:
            found.add(step.argval)
    return found | (inner(program) - bound)


def inner(program: CodeType) -> set[str]:
    """The names that functions take from outside."""
    found: set[str] = set()
    for part in program.co_consts:
        if isinstance(part, CodeType):
            steps = dis.get_instructions(part)
            found |= {s.argval for s in steps if s.opname == "LOAD_GLOBAL"}
            found |= inner(part)
    return found


def as_text(cell: Cell, source: str) -> Cell:
    """The cell's code, text and pictures to read."""
    text = [NEEDS_TORCH, f"```python\n{source}\n```"]
    pictures: dict[str, Cell] = {}
    for output in cell["outputs"]:
        data = output.get("data", {})
        printed = output.get("text", "") or data.get("text/plain", "")
        if "image/png" in data:
            name = f"{len(pictures)}.png"
            pictures[name] = {"image/png": data["image/png"]}
            alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
            text.append(f"![{alt}](attachment:{name})")
        elif printed:
            text.append(f"```text\n{''.join(printed).rstrip()}\n```")
    attached = {"attachments": pictures} if pictures else {}
    return markdown(cell["id"], "\n\n".join(text)) | attached


def markdown(name: str, source: str) -> Cell:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def code(name: str, source: str) -> Cell:
    return markdown(name, source) | {
        "cell_type": "code",
        "outputs": [],
        "execution_count": None,
    }
