"""Published weights: safetensors files in one folder per weight version."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slime_profiler_plugin.demo._settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

_FOLDER: Final = re.compile(r"weight_v\d{6,}")
_FILE: Final = re.compile(r"weights-\d{5}-of-(\d{5})\.safetensors")
_PUBLISHING: Final = ("disk", "disk_delta")


class WeightsError(RuntimeError):
    """Published weights cannot be loaded; the message names the file and the reason."""


def version_folder(settings: Settings, weight_version: str) -> Path:
    """Where the weights of a version are published. Raises `ValueError` when the settings name no folder."""
    if not settings.weights_folder:
        raise ValueError(f"transport is {settings.transport}: weights_folder is needed")
    return Path(settings.weights_folder) / f"weight_v{int(weight_version):06d}"


def file_name(number: int, count: int) -> str:
    """Name of file `number` of `count`.

    >>> file_name(2, 7)
    'weights-00002-of-00007.safetensors'
    """
    return f"weights-{number:05d}-of-{count:05d}.safetensors"


def pack_file(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a safetensors file."""
    from safetensors.torch import save

    return save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, dict(metadata))


def write_file(path: Path, data: bytes) -> None:
    """Write a file, in a folder that other ranks may be making too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def list_files(folder: Path) -> list[Path]:
    """All files of a version, in order. Raises `WeightsError` when one is missing."""
    found = sorted(path for path in folder.glob("*") if _FILE.fullmatch(path.name))
    if not found:
        raise WeightsError(f"{folder}: there are no weights")
    count = int(_FILE.sub(r"\1", found[-1].name))
    wanted = [folder / file_name(number, count) for number in range(count)]
    for path in wanted:
        if path not in found:
            raise WeightsError(f"{path}: missing")
    return wanted


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors, on the CPU, and metadata of a file. Raises `WeightsError`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: {error}") from error


def remove_old_versions(settings: Settings, weight_version: str) -> None:
    """Remove all versions but `weight_version`, which every engine now has."""
    if settings.transport not in _PUBLISHING:
        return
    current = version_folder(settings, weight_version)
    for folder in current.parent.iterdir():
        if _FOLDER.fullmatch(folder.name) and folder != current:
            shutil.rmtree(folder)
