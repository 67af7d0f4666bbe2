"""The notebooks as they run in the browser: NumPy is there, torch is not, and the cells that need it say so."""

import ast
import dis
from types import CodeType
from typing import Any, TypeGuard

Cell = dict[str, Any]

WELCOME = """*You read this chapter in the browser, which has NumPy and no torch. Run the next cell first: it fetches
the package. Cells that need torch stand here as text, with what they give elsewhere.*"""
INSTALL = "%pip install -q attn-tutor matplotlib"
NEEDS_TORCH = "*This cell needs torch, which the browser does not have.*"
DEFINITION = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
SILENT = DEFINITION | ast.Assign  # of a picture half drawn, only definitions stay
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
        body = ast.parse(source).body
        torch = [line for line in body if is_torch_import(line)]
        others = [line for line in body if line not in torch]
        lost |= {name for line in torch for name in writes(program(line))}
        free = [line for line in others if is_free(line, lost)]
        if len(free) == len(others) > 0:
            cells.append(cell | code(cell["id"], without(source, torch)))
        else:  # what it imports and defines without torch stays, for the cells below
            kept = DEFINITION if "plt." in source or "plot_" in source else SILENT
            stays = [line for line in free if isinstance(line, kept)]
            gone = [line for line in others if line not in stays]
            lost |= {name for line in gone for name in writes(program(line))}
            cells.append(as_text(cell, source))
            rest = "\n".join(map(ast.unparse, stays))
            cells += [code(cell["id"] + "-rest", rest)] * bool(stays)
    about = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return notebook | {"cells": cells, "metadata": about}


def is_torch_import(statement: ast.stmt) -> bool:
    """Whether this imports torch, the half that is written in it, or a published model, which is not there either."""
    if isinstance(statement, ast.Import):
        modules = [name.name for name in statement.names]
    elif isinstance(statement, ast.ImportFrom):
        modules = [f"{statement.module}.{name.name}" for name in statement.names]
    else:
        return False
    missing = ("torch.", "attn_tutor.torch.", "attn_tutor.models.")
    return any(f"{m}.".startswith(missing) for m in modules)


def is_free(statement: ast.stmt, lost: set[str]) -> bool:
    """Whether this reads no lost name. What it makes is found again, or is lost too."""
    compiled = program(statement)
    if reads(compiled) & lost:
        filled = [x.value for x in ast.walk(statement) if is_filled(x)]
        lost |= writes(compiled) | {x.id for x in filled if isinstance(x, ast.Name)}
        return False
    lost -= writes(compiled)
    return True


def is_filled(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def program(statement: ast.stmt) -> CodeType:
    return compile(ast.Module([statement], []), "cell", "exec")


def without(source: str, statements: list[ast.stmt]) -> str:
    gone = {n for s in statements for n in range(s.lineno, (s.end_lineno or 0) + 1)}
    kept = [x for n, x in enumerate(source.splitlines(), 1) if n not in gone]
    return "\n".join(kept).strip("\n")


def writes(program: CodeType) -> set[str]:
    """The names that a statement binds."""
    found = dis.get_instructions(program)
    return {step.argval for step in found if step.opname == "STORE_NAME"}


def reads(program: CodeType) -> set[str]:
    """The names that a statement takes from those above it."""
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
