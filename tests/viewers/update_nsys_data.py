"""Makes tests/data/nsys_program.sqlite anew: a real export of a program of ours, less what is of the machine.

python tests/viewers/update_nsys_data.py
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from nsys_run import ROOT, profile

TARGET = ROOT / "tests" / "data" / "nsys_program.sqlite"
#: What is kept of each table. All else may name the host, its user, its paths and what was printed.
KEPT = {
    "TARGET_INFO_SESSION_START_TIME": "select utcEpochNs, null, null from old.{table}",
    "EXPORT_META_DATA": "select * from old.{table} where name = 'EXPORT_PRODUCT_VERSION' "
    "or name glob 'EXPORT_SCHEMA_VERSION*'",
    "PROCESSES": "select globalPid, pid, 'python' from old.{table} "
    "where globalPid in (select globalTid >> 24 << 24 from old.NVTX_EVENTS)",
    "ThreadNames": "select * from old.{table} where globalTid in (select globalTid from old.NVTX_EVENTS)",
    "NVTX_EVENTS": "select * from old.{table}",
    "OSRT_API": "select * from old.{table} order by rowid limit 100",
    "PROFILER_OVERHEAD": "select * from old.{table}",
}
STRINGS = """
insert into StringIds select * from old.StringIds where id in (
  select textId from NVTX_EVENTS union select nameId from OSRT_API union select nameId from PROFILER_OVERHEAD
  union select nameId from ThreadNames)
"""


def main(nsys: str) -> None:
    """Record, export, keep what is ours."""
    program = str(Path(__file__).with_name("nsys_program.py"))
    with tempfile.TemporaryDirectory() as folder:
        made = profile(nsys, [program], lambda: Path(tempfile.mkdtemp(dir=folder)), trace="nvtx,osrt")
        new = Path(folder, "new.sqlite")
        with closing(sqlite3.connect(new)) as connection:
            connection.execute("attach ? as old", (str(made),))
            for table in ("StringIds", *KEPT):
                (sql,) = connection.execute(
                    "select sql from old.sqlite_master where name = ?", (table,)
                ).fetchone()
                connection.execute(sql)
                if table in KEPT:
                    connection.execute(f"insert into main.{table} {KEPT[table].format(table=table)}")
            connection.execute(STRINGS)
            connection.commit()
            connection.execute("detach old")
            connection.execute("vacuum")
        TARGET.parent.mkdir(exist_ok=True)
        shutil.copyfile(new, TARGET)


if __name__ == "__main__":
    found = shutil.which("nsys")
    sys.exit("Nsight Systems is not installed" if found is None else main(found))
