"""Runs a program where there is no CUDA: ``without_cuda.py PROGRAM``."""

from __future__ import annotations

import runpy
import sys

import no_cuda

no_cuda.install()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
