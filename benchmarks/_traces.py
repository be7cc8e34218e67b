"""Traces as torch.profiler writes them, of any size, the same for the same seed.

One rank is one file: a program that calls Python functions, operators and CUDA launches on two threads,
kernels on two streams, arrows between them, and the rows that Kineto adds. The slices of a track nest, as
nearly all real ones do; a given share crosses the slice before it, as some real ones do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from isal import igzip

#: Unix time, in ns, of the base that torch.profiler used in the last quarter of 2026.
BASE_NS = 1_790_857_026_000_000_000
#: ``kineto``: several fields to a line, descriptions last, as torch 2.3 writes. ``spread``: a field to a line
#: and descriptions first, as torch 2.13 and later write.
LAYOUTS = ("kineto", "spread")
_START_NS = 5_109_774_773_000_000
_GPUS = 8
_STREAMS = (7, 24)
_PIECE = 4096
_OPERATORS = (
    "aten::linear",
    "aten::addmm",
    "aten::mul",
    "aten::add_",
    "aten::_scaled_dot_product_flash_attention",
    "aten::copy_",
    "aten::native_layer_norm",
    "autograd::engine::evaluate_function: AddmmBackward0",
    "c10d::allreduce_",
    "record_param_comms",
)
_FUNCTIONS = (
    "torch/nn/modules/module.py(1747): _call_impl",
    "megatron/core/transformer/transformer_layer.py(389): forward",
    "nn.Module: TransformerLayer_{}",
    "torch/utils/_contextlib.py(113): decorate_context",
    "<built-in method linear of type object at 0x7f3c5e2a1b40>",
)
_MULTIPLY = (
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >"
)
_KERNELS = (
    f"void at::native::vectorized_elementwise_kernel<4, {_MULTIPLY}, char*[3]>(int, {_MULTIPLY})",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >()",
)
#: Shares of what the program does next; the rest are launches, which are four events each.
_OPERATOR, _FUNCTION, _BACKWARD, _MEMORY, _ANNOTATION = 0.25, 0.62, 0.64, 0.65, 0.66


class Shape(NamedTuple):
    """What to write: `events` without descriptions, `crossings` as a share of the slices."""

    events: int
    ranks: int = 8
    crossings: float = 0.01
    layout: str = LAYOUTS[0]
    seed: int = 0


class Counts(NamedTuple):
    """What stands in a file that was written. `events` are all of them, descriptions too."""

    events: int
    slices: int
    arrows: int
    instants: int
    crossings: int
    text_bytes: int


def write_trace(path: Path, rank: int, shape: Shape) -> Counts:
    """Write `rank`'s trace, compressed where the name ends in ``.gz``; memory does not grow with its size."""
    program = _Program(rank, shape)
    size = 0
    with igzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as stream:
        for text in program.text():
            data = text.encode()
            size += len(data)
            stream.write(data)
    return program.counts(size)


class _Program:
    """One rank, as it runs. Times are whole ns since the base."""

    def __init__(self, rank: int, shape: Shape) -> None:
        self._rank = rank
        self._shape = shape
        self._chance = random.Random(f"{shape.seed} {rank}")
        self._main = 100_000 + 137 * rank
        self._backward = self._main + 61
        self._device = rank % _GPUS
        #: Ends of the open slices of each thread, the outermost first; when each stream is free.
        self._open: dict[int, list[int]] = {self._main: [], self._backward: []}
        self._free = dict.fromkeys(_STREAMS, 0)
        self._last_id = 0
        self._slices = self._arrows = self._instants = self._crossings = self._described = 0
        self._out: list[str] = []
        spread = shape.layout == "spread"
        self._slice: Callable[..., None] = self._slice_spread if spread else self._slice_kineto
        self._arrow: Callable[..., None] = self._arrow_spread if spread else self._arrow_kineto

    def counts(self, text_bytes: int) -> Counts:
        events = self._slices + 2 * self._arrows + self._instants + self._described
        return Counts(events, self._slices, self._arrows, self._instants, self._crossings, text_bytes)

    def text(self) -> Iterator[str]:
        """The file, in pieces."""
        descriptions_first = self._shape.layout == "spread"
        yield self._head()
        now = _START_NS + self._chance.randrange(50_000_000)
        began = now
        if descriptions_first:
            self._describe(now)
        # The three rows at the end are events too.
        while self._events() < self._shape.events - 3:
            now += self._chance.randrange(1, 12_000)
            self._step(now)
            if len(self._out) > _PIECE:
                yield ",".join(self._out) + ","
                self._out.clear()
        if not descriptions_first:
            self._describe(now)
        self._profiler_rows(began, now)
        yield ",".join(self._out) + f'\n  ],\n  "traceName": "rank{self._rank}.json"\n}}\n'
        self._out.clear()

    def _events(self) -> int:
        return self._slices + 2 * self._arrows + self._instants

    def _step(self, now: int) -> None:
        chance = self._chance.random
        what = chance()
        left = self._shape.events - 3 - self._events()
        if what < _OPERATOR or left < 4:
            thread = self._backward if chance() < 0.4 else self._main
            self._call(thread, "cpu_op", _OPERATORS[int(chance() * len(_OPERATORS))], now, 200_000)
        elif what < _FUNCTION:
            name = _FUNCTIONS[int(chance() * len(_FUNCTIONS))].format(int(chance() * 64))
            self._call(self._main, "python_function", name, now, 800_000)
        elif what < _BACKWARD:
            number = self._next_id()
            self._arrow("s", number, self._main, self._main, now, "fwdbwd")
            self._arrow("f", number, self._main, self._backward, now + 900_000, "fwdbwd")
            self._arrows += 1
        elif what < _MEMORY:
            self._instant(now)
        elif what < _ANNOTATION:
            self._call(self._main, "user_annotation", "## phase optimizer ##", now, 500_000)
        else:
            self._launch(now)

    def _call(self, thread: int, category: str, name: str, start: int, longest: int) -> None:
        """A slice within those that are open on `thread`, or across the end of the innermost."""
        open_ends = self._open[thread]
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        wanted = self._chance.randrange(1, longest)
        if open_ends and self._crosses_next():
            wanted = open_ends[-1] - start + 1 + self._chance.randrange(500)
        else:
            if open_ends:
                wanted = min(wanted, open_ends[-1] - start)
            open_ends.append(start + wanted)
        number = self._next_id()
        if category == "cpu_op":
            arguments = (
                f'"External id": {number},"Record function id": 0, '
                '"Concrete Inputs": ["", "", "[]", "False"], '
                '"Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar", ""], '
                '"Input Strides": [[4096, 1], [1, 4096], [], []], '
                f'"Input Dims": [[8192, 4096], [4096, 14336], [], []], "Ev Idx": {number}'
            )
        elif category == "python_function":
            parent = max(number - 20, 0)
            arguments = f'"Python id": {number}, "Python parent id": {parent}, "Ev Idx": {number}'
        else:
            arguments = f'"External id": {number}, "Ev Idx": {number}'
        self._slice(category, name, self._main, thread, start, wanted, arguments)
        self._slices += 1

    def _launch(self, now: int) -> None:
        """A launch on the main thread, its kernel on a stream, an arrow between them."""
        chance = self._chance.random
        number = self._next_id()
        stream = _STREAMS[chance() < 0.2]
        open_ends = self._open[self._main]
        while open_ends and open_ends[-1] <= now:
            open_ends.pop()
        took = self._chance.randrange(2_000, 7_000)
        if open_ends:
            took = min(took, open_ends[-1] - now)
        open_ends.append(now + took)
        arguments = f'"External id": {number}, "cbid": 211, "correlation": {number}'
        self._slice("cuda_runtime", "cudaLaunchKernel", self._main, self._main, now, took, arguments)
        self._arrow("s", number, self._main, self._main, now, "ac2g")
        start, length = max(now + 300_000, self._free[stream]), self._chance.randrange(500, 30_000)
        if start == self._free[stream] and self._crosses_next():
            start -= 200
        self._free[stream] = start + length
        arguments = (
            f'"External id": {number}, "queued": 0, "device": {self._device}, "context": 1, '
            f'"stream": {stream}, "correlation": {number}, "registers per thread": 168, '
            '"shared memory": 231424, "blocks per SM": 1.000000, "warps per SM": 12.000000, '
            '"grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 19'
        )
        name = _KERNELS[int(chance() * len(_KERNELS))]
        self._slice("kernel", name, self._device, stream, start, length, arguments)
        self._arrow("f", number, self._device, stream, start, "ac2g")
        self._slices += 2
        self._arrows += 1

    def _crosses_next(self) -> bool:
        """Whether a slice that could cross another does: when there are fewer than there should be."""
        crosses = self._crossings < self._shape.crossings * self._slices
        self._crossings += crosses
        return crosses

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _slice_kineto(
        self, category: str, name: str, pid: int, tid: int, start: int, length: int, arguments: str
    ) -> None:
        self._out.append(
            f'\n  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
            f'    "ts": {_us(start)}, "dur": {_us(length)},\n    "args": {{\n      {arguments}\n    }}\n  }}'
        )

    def _slice_spread(
        self, category: str, name: str, pid: int, tid: int, start: int, length: int, arguments: str
    ) -> None:
        self._out.append(
            f'\n  {{\n    "ph": "X",\n    "cat": "{category}",\n    "name": "{name}",\n    "pid": {pid},\n'
            f'    "tid": {tid},\n    "ts": {_us(start)},\n    "dur": {_us(length)}\n    ,\n    "args": {{\n'
            f"      {arguments}\n    }}\n  }}"
        )

    def _arrow_kineto(self, phase: str, number: int, pid: int, tid: int, at: int, category: str) -> None:
        binding = ', "bp": "e"' if phase == "f" else ""
        self._out.append(
            f'\n  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {_us(at)},\n'
            f'    "cat": "{category}", "name": "{category}"{binding}\n  }}'
        )

    def _arrow_spread(self, phase: str, number: int, pid: int, tid: int, at: int, category: str) -> None:
        binding = ',\n    "bp": "e"' if phase == "f" else ""
        self._out.append(
            f'\n  {{\n    "ph": "{phase}",\n    "id": {number},\n    "pid": {pid},\n    "tid": {tid},\n'
            f'    "ts": {_us(at)},\n    "cat": "{category}",\n    "name": "{category}"{binding}\n    \n  }}'
        )

    def _instant(self, now: int) -> None:
        number = self._next_id()
        self._out.append(
            f'\n  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",\n'
            f'    "pid": {self._main}, "tid": {self._main},\n    "ts": {_us(now)},\n    "args": {{\n'
            f'      "Total Allocated": {number * 512}, "Bytes": {number % 977}, "Device Type": 1, '
            f'"Ev Idx": {number}\n    }}\n  }}'
        )
        self._instants += 1

    def _head(self) -> str:
        members = ", ".join(map(str, range(self._shape.ranks)))
        return (
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n      "id": 0, "name": "NVIDIA H200", '
            '"totalGlobalMem": 150755999744,\n      "computeMajor": 9, "computeMinor": 0\n    }\n  ],\n'
            f'  "cupti_version": 24, "cuda_runtime_version": 12080,\n  "distributedInfo": {{"backend": '
            f'"nccl", "rank": {self._rank}, "world_size": {self._shape.ranks}, "pg_count": 1, "pg_config": '
            f'[{{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": '
            f'{self._shape.ranks}, "ranks": [{members}]}}], "nccl_version": "2.26.2"}},\n'
            f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": ['
        )

    def _describe(self, now: int) -> None:
        """Names of processes and threads; every device has a process, used or not."""
        self._description("process_name", now, self._main, 0, "name", '"python3"')
        self._description("process_labels", now, self._main, 0, "labels", '"CPU"')
        self._description("process_sort_index", now, self._main, 0, "sort_index", str(self._main))
        for device in range(_GPUS):
            self._description("process_name", now, device, 0, "name", '"python3"')
            self._description("process_labels", now, device, 0, "labels", f'"GPU {device}"')
            self._description("process_sort_index", now, device, 0, "sort_index", str(5_000_000 + device))
        for stream in _STREAMS:
            self._description("thread_name", now, self._device, stream, "name", f'"stream {stream}"')
        for thread in (self._main, self._backward):
            self._description("thread_name", now, self._main, thread, "name", f'"thread {thread} (python3)"')

    def _description(self, name: str, now: int, pid: int, tid: int, key: str, value: str) -> None:
        self._out.append(
            f'\n  {{\n    "name": "{name}", "ph": "M", "ts": {_us(now)}, "pid": {pid}, "tid": {tid},\n'
            f'    "args": {{\n      "{key}": {value}\n    }}\n  }}'
        )
        self._described += 1

    def _profiler_rows(self, began: int, now: int) -> None:
        """What Kineto says of the recording itself, under process ids that are no numbers."""
        self._out.append(
            f'\n  {{\n    "ph": "X", "cat": "Trace", "ts": {_us(began)}, "dur": {_us(now - began)},\n'
            '    "pid": "Spans", "tid": "PyTorch Profiler",\n    "name": "PyTorch Profiler (0)",\n'
            '    "args": {\n      "Op count": 0\n    }\n  }'
        )
        for name, pid, tid, at in (
            ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", began),
            ("Record Window End", "", "", now),
        ):
            self._out.append(
                f'\n  {{\n    "name": "{name}", "ph": "i", "s": "g",\n    "pid": "{pid}", "tid": "{tid}", '
                f'"ts": {_us(at)}\n  }}'
            )
        self._slices += 1
        self._instants += 2


def _us(ns: int) -> str:
    """5109774773000001 as ``5109774773000.001``."""
    return f"{ns // 1000}.{ns % 1000:03d}"
