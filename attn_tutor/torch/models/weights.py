"""Files of trained weights, and of whatever else of a training has to last: written whole, checked before use."""

import os
import re
import zipfile
from os import PathLike
from pathlib import Path

import torch
from torch import nn

__all__ = ["load_weights", "save_weights"]

MADE = "how the layers were made"  # beside the weights, which do not tell


def save_weights(model: nn.Module, path: str | PathLike[str]) -> None:
    """Write the parameters and buffers of a model to a file.

    The file is whole or not there: it is written beside its place, and moved there at the end.

    Args:
        model: any module; its numbers are written as they are, from whatever device.
        path: of the file, whose folder must exist. A file that is there is replaced.

    Raises:
        FileNotFoundError: there is no such folder.

    Example:
        >>> import tempfile
        >>> one, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_weights(one, f"{folder}/weights.pt")
        ...     load_weights(other, f"{folder}/weights.pt")
        >>> torch.equal(one.weight, other.weight)
        True
    """
    require_folder("save_weights", path)
    weights = {name: x.cpu() for name, x in model.state_dict().items()}
    write(path, {**weights, MADE: made(model)})


def load_weights(model: nn.Module, path: str | PathLike[str]) -> None:
    """Read what :func:`save_weights` wrote into a model of the same sizes and options.

    Only numbers are read: a file can run no code. The model keeps its device and dtype. If anything is wrong, it keeps
    its numbers too.

    Args:
        model: the module to fill.
        path: of the file.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: the file is damaged, or holds the weights of another model. The message says which and what to do.

    Example:
        >>> load_weights(torch.nn.Linear(2, 3), "no_such_file.pt")
        Traceback (most recent call last):
        FileNotFoundError: [Errno 2] No such file or directory: 'no_such_file.pt'
    """
    weights = read(path)
    theirs, ours = weights.pop(MADE, None), made(model)
    if not all(isinstance(x, torch.Tensor) for x in weights.values()):
        raise ValueError(f"{path} holds no weights; save_weights writes such files")
    own = model.state_dict()
    if faults := differences({k: x.shape for k, x in weights.items()}, own):
        raise ValueError(
            f"{path} holds the weights of another model: {faults}. Make the model with the sizes it was saved with"
        )
    if theirs not in (None, ours):
        name = next(k for k in {**theirs, **ours} if theirs.get(k) != ours.get(k))
        raise ValueError(
            f"{path} holds the weights of another model: {name or 'it'} was made with {theirs.get(name)} there "
            f"and with {ours.get(name)} here. Make the model with the options it was saved with"
        )
    model.load_state_dict(weights)


def made(model: nn.Module) -> dict[str, str]:
    """By the name of each layer of this package the options that no shape of its weights shows, but for dropout."""
    return {
        name: re.sub("dropout=[^,]*,? ?", "", layer.extra_repr())
        for name, layer in model.named_modules()
        if type(layer).__module__.startswith("attn_tutor.")
    }


def differences(
    found: dict[str, torch.Size], own: dict[str, torch.Tensor], most: int = 3
) -> str:
    """How the named shapes of a file differ from a model's, in words; empty if they do not."""
    faults = [f"it lacks {name}" for name in own if name not in found]
    faults += [f"the model has no {name}" for name in found if name not in own]
    faults += [
        f"{name} has shape {tuple(found[name])} there and {tuple(x.shape)} here"
        for name, x in own.items()
        if name in found and found[name] != x.shape
    ]
    more = [f"and {len(faults) - most} more"] if len(faults) > most else []
    return "; ".join(faults[:most] + more)


def require_folder(where: str, path: str | PathLike[str]) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{where}: there is no folder {folder}; make it first")


def write(path: str | PathLike[str], content: dict[str, object]) -> None:
    part = f"{os.fspath(path)}.part"
    torch.save(content, part)
    os.replace(part, path)


def read(path: str | PathLike[str]) -> dict:
    """What :func:`write` wrote, on the CPU."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                if damaged := archive.testzip():  # torch compares no checksums
                    raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # zipfile and pickle raise many kinds
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"{path} cannot be read: it is damaged, cut short, or was not written by this package ({reason}). "
                "Copy it again, or delete it and train again"
            ) from None
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} holds a {type(content).__name__}, not a dictionary of weights"
        )
    return content
