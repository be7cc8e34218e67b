"""Questions over records; answers are tables."""

from ._phase_table import Cell, Column, PhaseTable, Row, phase_table

__all__ = ["Cell", "Column", "PhaseTable", "Row", "phase_table"]
