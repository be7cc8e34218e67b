"""The analytical engine behind the tables: DuckDB, of the extra ``analyze``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_MEMORY: Final = "700MB"
#: What a file of the cache may make the engine do: nothing but answer.
_CONFIG: Final = {
    "memory_limit": _MEMORY,
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}


class TablesUnavailableError(RuntimeError):
    """DuckDB is not installed; the message says which extra brings it."""


class TablesError(ValueError):
    """A query is wrong, or may not do what it asks for; the message is the engine's."""


class CacheDamagedError(TablesError):
    """The file of the tables cannot be read; making it anew mends that."""


def load_duckdb() -> Any:
    """The module. Raises `TablesUnavailableError`."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise TablesUnavailableError(
            "tables need DuckDB, which is not installed: pip install 'slime-profiler-plugin[analyze]'"
        ) from error


def connect(path: Path, *, read_only: bool, temporary: Path | None = None) -> Any:
    """A connection to the database at `path`.

    One that is `read_only` can reach no other file and no network, and that cannot be undone from SQL.
    With `temporary`, what does not fit memory goes there. Raises `TablesUnavailableError`, and an error
    of the engine where the file cannot be used.
    """
    duckdb = load_duckdb()
    # Attached to an engine of its own: one that is asked for a path twice in a process gives the first again,
    # whatever file has that name meanwhile.
    connection = duckdb.connect(":memory:", config=dict(_CONFIG))
    connection.execute("set enable_progress_bar = false")  # it would go to standard output
    name = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{name}' AS run{' (READ_ONLY)' if read_only else ''}")
    connection.execute("USE run")
    if temporary is not None:
        connection.execute("set temp_directory = ?", [str(temporary)])
    if read_only:
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
    return connection


def fetch(
    connection: Any, query: str, values: Sequence[Any] | Mapping[str, Any] = ()
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names of columns, and rows. Raises `TablesError` with what the engine says is wrong."""
    duckdb = load_duckdb()
    try:
        answer = connection.execute(query, dict(values) if isinstance(values, Mapping) else list(values))
        if answer is None or answer.description is None:
            return [], []
        return [column[0] for column in answer.description], answer.fetchall()
    except (duckdb.IOException, duckdb.InternalException, duckdb.SerializationException) as error:
        raise CacheDamagedError(str(error)) from error
    except duckdb.Error as error:
        raise TablesError(str(error)) from error
