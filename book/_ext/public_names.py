"""What the package offers, read from the code: its public names, by the modules that define them."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# Modules in the order of the chapters; one that is not listed comes last.
ORDER = [
    "everything", "scoring", "kernels", "masks", "rules", "softmax", "attention", "self_attention", "multi_head",
    "positional", "cache", "gradients", "layers", "decoding", "models",
]  # fmt: skip  # a list of words reads as lines


def sections(package: str) -> dict[str, dict[str, Any]]:
    """Names and things of each module, in the order of the chapters and then of the source."""
    room = importlib.import_module(package)
    things = {name: getattr(room, name) for name in room.__all__}

    def home(name: str) -> str:
        """The module that has it; of the rules, which both halves have in common, that of this half."""
        module = str(things[name].__module__)
        return f"{package}.rules" if module == "attn_tutor.rules" else module

    def place(name: str) -> tuple[int, str, int]:
        module = home(name).removeprefix(f"{package}.")
        chapter, last = module.partition(".")[0].lstrip("_"), len(ORDER)
        thing = inspect.unwrap(things[name])
        # A constant has no lines of its own; it stands first.
        line = inspect.getsourcelines(thing)[1] if callable(thing) else 0
        return (ORDER.index(chapter) if chapter in ORDER else last), module, line

    found: dict[str, dict[str, Any]] = {}
    for name in sorted(things, key=place):
        found.setdefault(home(name), {})[name] = things[name]
    return found


def everything(package: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """From where readers import, the module there, and its names and things: from the package, or from each module."""
    room = importlib.import_module(package)
    modules = [package] if hasattr(room, "__all__") else modules_of(room)
    for place in modules:
        yield from (
            (place, module, things) for module, things in sections(place).items()
        )


def modules_of(room: ModuleType) -> list[str]:
    return [
        f"{room.__name__}.{info.name}" for info in pkgutil.iter_modules(room.__path__)
    ]


def title(module: str, package: str) -> str:
    """A module's name below its package; an underscore says only that readers import from the package."""
    return module.removeprefix(f"{package}.").replace("._", ".").lstrip("_")


def written_once(thing: Any) -> list[type]:
    """The bases of a class that both halves have in common; what they define is its own."""
    once = "attn_tutor._both."
    return [it for it in inspect.getmro(thing) if it.__module__.startswith(once)]


def methods(thing: Any) -> Iterator[tuple[str, Any]]:
    """The public methods of a class."""
    for room in [thing, *written_once(thing)] if inspect.isclass(thing) else []:
        for name, fn in vars(room).items():
            if not name.startswith("_") and callable(fn := getattr(fn, "__func__", fn)):
                yield name, fn


def commands() -> list[str]:
    """The packages that run as ``python -m``."""
    root = importlib.import_module("attn_tutor")
    names = (info.name for info in pkgutil.walk_packages(root.__path__, "attn_tutor."))
    return sorted(x.removesuffix(".__main__") for x in names if x.endswith(".__main__"))
