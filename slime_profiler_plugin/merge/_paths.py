"""Merging whatever is named: runs, traces, folders of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slime_profiler_plugin.read import check_run_folder, discover, find_runs, is_run_folder

from ._foreign import merge_discovered
from ._merge import merge_run
from ._options import MergeOptions
from ._report import MergeReport, report_damage
from ._rollouts import MergeUsageError, RolloutChoice


def merge_paths(
    paths: Sequence[Path],
    rollouts: RolloutChoice | None,
    out: Path | None,
    attempt: int | None,
    options: MergeOptions,
) -> MergeReport:
    """Merge a run (`merge_run`) where one of `paths` is its folder, else the traces in them (`merge_traces`).

    Traces that are named beside a run go into its outputs. `rollouts` and `attempt` are of runs only;
    ``None``: the latest, all. Raises what those two raise, and `read.FolderOfRunsError` for a folder of runs.
    """
    folders: list[Path] = []
    others: list[Path] = []
    for path in paths:
        if not path.is_dir():
            others.append(path)
        elif is_run_folder(path):
            folders.append(path)
        elif find_runs(path, []):
            check_run_folder(path)  # which says what it holds
        else:
            others.append(path)
    found = discover(others)
    found.skipped.extend((run, "a run: name its folder itself") for run in found.runs)
    if not folders:
        if rollouts is not None or attempt is not None:
            raise MergeUsageError(
                "--rollout and --attempt choose from a run, and no folder of a run is named"
            )
        return merge_discovered(found, out, options)
    chosen: RolloutChoice = "latest" if rollouts is None else rollouts
    report = merge_run(folders, chosen, out, attempt, options, found.traces)
    report.damage.extend(map(report_damage, found.damage))
    report.ignored.extend(f"{path} ({why})" for path, why in found.skipped)
    return report
