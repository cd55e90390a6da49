"""Random logs whose truth is known, ways to spoil them, and command lines: see benchmarks/fuzz.py.

`truth` draws what happened; `forms`, `ways` and `valid` write it down in every form that can be
read; `faults`, `table_faults`, `policy_faults`, `broken_files` spoil it; `cases` draws among these;
`judge` runs a case and says what is wrong with its outcome. `calls` are bad arguments of the Python
functions, `commands` are command lines.
"""
