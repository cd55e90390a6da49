"""Random logs whose truth is known, ways to break them, and command lines: see benchmarks/fuzz.py.

`truth` draws what happened, `ways` writes it down in every form that the library reads, `faults` and
`broken_files` spoil it, `judge` runs a case and says what is wrong with the outcome, `commands` and
`calls` do the same for command lines and for arguments of the Python functions.
"""
