"""What the package offers, read from the code: its modules in the order of the chapters, and their public names."""

import ast
import importlib
import inspect
import pkgutil
from types import ModuleType

# Modules in the order of the chapters; one that is not listed comes last.
ORDER = [
    "scoring", "kernels", "masks", "softmax", "attention", "self_attention", "multi_head", "positional", "cache",
    "gradients", "modules", "training", "weights", "decoding", "seq2seq", "transformer", "language_model",
    "encoder_decoder",
]  # fmt: skip  # a list of words reads as lines


def modules(package: ModuleType) -> list[ModuleType]:
    """Those with public names; a plain module is its own only one."""
    if not hasattr(package, "__path__"):
        return [package]
    names = [
        info.name
        for info in pkgutil.iter_modules(package.__path__)
        if not info.name.startswith("_")
    ]
    names.sort(key=place)
    found = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return [module for module in found if public_names(module)]


def place(name: str) -> int:
    """Of a module, among the chapters."""
    name = name.rpartition(".")[2]
    return ORDER.index(name) if name in ORDER else len(ORDER)


def public_names(module: ModuleType) -> list[str]:
    """What the module offers, in the order of its source."""
    tree = ast.parse(inspect.getsource(module))
    defined = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    return [name for name in defined if name in getattr(module, "__all__", [])]


def import_name(package: str, module: ModuleType, name: str) -> str:
    """The name by which readers import it: from the package, if that hands it on."""
    handed_on = hasattr(importlib.import_module(package), name)
    return f"{package if handed_on else module.__name__}.{name}"


def commands() -> list[ModuleType]:
    """The packages that run as ``python -m``."""
    root = importlib.import_module("attn_tutor")
    found = [
        info.name.removesuffix(".__main__")
        for info in pkgutil.walk_packages(root.__path__, "attn_tutor.")
        if info.name.endswith(".__main__")
    ]
    return [importlib.import_module(name) for name in sorted(found)]
