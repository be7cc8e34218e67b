"""What a merge costs beside its peers and beside doing nothing but reading and writing.

CPU seconds (user and system, all processes) and peak memory of whole programs, gzip to gzip, on traces that
`_traces` generates. ``python benchmarks/merge.py --help`` tells the parameters; without any it takes some
minutes and 2 GB of disk. Peers that are not there are left out, by name. The exit status is 1 when a bound of
memory is broken or a merger failed.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from _cost import Cost, FailedError, measure
from _traces import LAYOUTS, Counts, Shape, write_trace

CACHE = Path(__file__).resolve().parents[1] / ".cache"
SGLANG = "sglang==0.5.15.post1"
MERGER_IN_WHEEL = "sglang/srt/utils/profile_merger.py"
PARTS = ("ours", "sglang", "viztracer", "stdlib", "floor", "big", "many")
#: What is fast is measured more than once.
REPEATS = {"ours": 3, "floor": 3}
BIG_JOBS = 2
BIG_LIMIT_MB = 500
#: Of one rank of the many: about 1 MB of text.
MANY_EVENTS = 3_400
#: Of one megabyte of text, in events.
EVENTS_PER_MB = 3_500


def main() -> int:
    """Measure and print; see the module's text for the exit status."""
    options = parse()
    options.data.mkdir(parents=True, exist_ok=True)
    good = True
    peers = [part for part in PARTS[:5] if part in options.only]
    if peers:
        good &= compare(options, peers)
    if "big" in options.only:
        good &= one_big(options)
    if "many" in options.only:
        good &= many_ranks(options)
    return 0 if good else 1


def parse() -> argparse.Namespace:
    """The parameters."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=200_000, help="events of a rank (%(default)s)")
    parser.add_argument("--ranks", type=int, default=8, help="ranks that are merged (%(default)s)")
    parser.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0], help="of the text (%(default)s)")
    parser.add_argument("--jobs", type=int, default=0, help="of ours, beside the peers; 0: all cores")
    parser.add_argument(
        "--big-mb", type=int, default=1_000, help="size of the single rank's text (%(default)s)"
    )
    parser.add_argument(
        "--many", type=numbers, default=[64, 256, 1024], help="numbers of ranks of 1 MB each (64,256,1024)"
    )
    parser.add_argument("--only", type=names, default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--data",
        type=Path,
        default=CACHE / "merge-bench",
        help="inputs, made once, and outputs (%(default)s)",
    )
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    """``64,256`` as numbers."""
    return [int(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """Parts of the benchmark; raises `argparse.ArgumentTypeError` for any other."""
    parts = text.split(",")
    if unknown := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}")
    return parts


def compare(options: argparse.Namespace, peers: list[str]) -> bool:
    """Every merger on the same ranks."""
    shape = Shape(options.events, options.ranks, layout=options.layout)
    paths, counts = make_inputs(options.data, shape)
    text_mb = sum(c.text_bytes for c in counts) / 1e6
    print(
        f"{options.ranks} ranks x {options.events} events ({options.layout}): {text_mb:.0f} MB of text, "
        f"{size_mb(paths):.1f} MB as gzip, {sum(c.crossings for c in counts)} crossings"
    )
    print(f"  {'':34}{'CPU s':>8}{'MB/s':>7}{'RSS MB':>8}{'PSS MB':>8}{'out MB':>8}   runs")
    costs: dict[str, Cost] = {}
    for peer in peers:
        merger = prepare(peer, options, paths)
        if merger is None:
            continue
        label, inputs, environment = merger
        out = options.data / f"out-{peer}.json.gz"
        costs[peer] = run(peer, out, options.jobs, inputs, environment, REPEATS.get(peer, 1))
        print_cost(label, costs[peer], text_mb, out, REPEATS.get(peer, 1))
        out.unlink()
    for other, label in (("sglang", "less CPU than SGLang's"), ("floor", "the CPU of the floor")):
        if "ours" in costs and other in costs:
            ours, theirs = costs["ours"].cpu_s, costs[other].cpu_s
            ratio = theirs / ours if other == "sglang" else ours / theirs
            print(f"  ours: {ratio:.1f} times {label}")
    return True


def prepare(
    peer: str, options: argparse.Namespace, paths: list[Path]
) -> tuple[str, list[Path], dict[str, str]] | None:
    """How a merger is called: its label, its inputs, its environment. ``None``: it is not there."""
    if peer == "ours":
        return f"ours, jobs {options.jobs or os.cpu_count()}", paths, {}
    if peer == "sglang":
        file = find_sglang()
        if file is None:
            print(f"  {SGLANG}: left out, it cannot be downloaded")
            return None
        return "SGLang ProfileMerger", paths, {"PROFILE_MERGER": str(file)}
    if peer == "viztracer":
        if not importable("viztracer"):
            print("  viztracer: left out, not installed")
            return None
        library = "orjson" if importable("orjson") else "json"
        return f"VizTracer combine ({library}, from .json)", decompressed(paths), {}
    return {"stdlib": "json, gzip 6", "floor": "floor: decompress, split, compress"}[peer], paths, {}


def one_big(options: argparse.Namespace) -> bool:
    """One rank of a gigabyte, with two workers: memory in all."""
    shape = Shape(options.big_mb * EVENTS_PER_MB, 1, layout=options.layout)
    paths, (counts,) = make_inputs(options.data, shape)
    text_mb = counts.text_bytes / 1e6
    print(f"one rank of {text_mb:.0f} MB, {counts.events} events, {BIG_JOBS} workers")
    out = options.data / "out-big.json.gz"
    cost = run("ours", out, BIG_JOBS, paths, {}, 1)
    print_cost("ours", cost, text_mb, out, 1)
    out.unlink()
    good = cost.rss_mb <= BIG_LIMIT_MB
    print(f"  memory in all {'within' if good else 'ABOVE'} the bound of {BIG_LIMIT_MB} MB")
    return good


def many_ranks(options: argparse.Namespace) -> bool:
    """Ever more ranks of 1 MB: memory must not grow with them, time only in step."""
    print(f"ranks of 1 MB, jobs {options.jobs or os.cpu_count()}")
    print(f"  {'ranks':>6}{'CPU s':>9}{'ms a rank':>11}{'RSS MB':>8}{'PSS MB':>8}")
    out = options.data / "out-many.json.gz"
    for ranks in options.many:
        paths, _ = make_inputs(options.data, Shape(MANY_EVENTS, ranks, layout=options.layout))
        cost = run("ours", out, options.jobs, paths, {}, 1)
        per_rank = cost.cpu_s / ranks * 1000
        print(
            f"  {ranks:>6}{cost.cpu_s:>9.2f}{per_rank:>11.1f}{cost.rss_mb:>8.0f}{cost.pss_mb:>8.0f}",
            flush=True,
        )
        out.unlink()
    return True


def run(
    name: str, out: Path, jobs: int, paths: Iterable[Path], environment: dict[str, str], repeats: int
) -> Cost:
    """The median of `repeats` runs of a merger, by its CPU."""
    program = Path(__file__).with_name("_mergers.py")
    pairs = [f"{key}={value}" for key, value in environment.items()]
    command = ["env", *pairs, sys.executable, str(program), name, str(out), str(jobs), *map(str, paths)]
    costs = sorted((measure(command) for _ in range(repeats)), key=lambda cost: cost.cpu_s)
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def print_cost(label: str, cost: Cost, text_mb: float, out: Path, runs: int) -> None:
    """One row."""
    print(
        f"  {label:34}{cost.cpu_s:>8.2f}{text_mb / cost.cpu_s:>7.0f}{cost.rss_mb:>8.0f}{cost.pss_mb:>8.0f}"
        f"{size_mb([out]):>8.1f}{runs:>7}",
        flush=True,
    )


def make_inputs(data: Path, shape: Shape) -> tuple[list[Path], list[Counts]]:
    """The traces of `shape` and what is in them; made once, and found again by the next run."""
    folder = data / "-".join(str(value) for value in shape)
    paths = [folder / f"bench-TP-{rank}.trace.json.gz" for rank in range(shape.ranks)]
    notes = folder / "counts"
    if not notes.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        counts = [write_trace(path, rank, shape) for rank, path in enumerate(paths)]
        notes.write_text("".join(" ".join(map(str, count)) + "\n" for count in counts))
    return paths, [Counts(*map(int, line.split())) for line in notes.read_text().splitlines()]


def decompressed(paths: list[Path]) -> list[Path]:
    """The same traces as plain JSON."""
    plain = [path.with_suffix("") for path in paths]
    for path, target in zip(paths, plain, strict=True):
        if not target.exists():
            with gzip.open(path) as source, target.open("wb") as stream:
                shutil.copyfileobj(source, stream)
    return plain


def find_sglang() -> Path | None:
    """SGLang's merger, out of its wheel, which is downloaded once."""
    folder = CACHE / "peers"
    file = folder / MERGER_IN_WHEEL
    if not file.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, SGLANG]
        if subprocess.run(command, check=False).returncode:
            return None
        (wheel,) = folder.glob("sglang-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(MERGER_IN_WHEEL, folder)
    return file


def importable(name: str) -> bool:
    """Whether the interpreter that runs the peers has the package."""
    return (
        subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode
        == 0
    )


def size_mb(paths: Iterable[Path]) -> float:
    """Bytes on disk / 10^6."""
    return sum(path.stat().st_size for path in paths) / 1e6


def guarded(measuring: Callable[[], int]) -> int:
    """The exit status, 1 when a merger failed."""
    try:
        return measuring()
    except FailedError as error:
        print(f"failed: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(guarded(main))
