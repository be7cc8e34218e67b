"""The recorder: what runs inside a training process, and may never break it."""

from ._recorder import Recorder, open_recorder

__all__ = ["Recorder", "open_recorder"]
