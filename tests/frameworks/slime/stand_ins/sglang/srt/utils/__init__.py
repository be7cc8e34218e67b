"""Pickles of tensors that share their memory, as text where asked."""

import base64
import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch.multiprocessing.reductions  # noqa: F401 - registers how tensors share their memory


class MultiprocessingSerializer:
    @staticmethod
    def serialize(value: Any, output_str: bool = False) -> bytes | str:
        buffer = io.BytesIO()
        ForkingPickler(buffer).dump(value)
        return base64.b64encode(buffer.getvalue()).decode() if output_str else buffer.getvalue()

    @staticmethod
    def deserialize(data: bytes | str) -> Any:
        return pickle.loads(base64.b64decode(data) if isinstance(data, str) else data)


def kill_process_tree(_pid: int, *_args: Any, **_more: Any) -> None:
    raise RuntimeError("slime started no engine here")
