"""Which cases are drawn, and how often."""

import numpy as np

from fuzzing import broken_files, faults, policy_faults, table_faults
from fuzzing.valid import valid_case

VALID_SHARE = 0.5
INVALID = {
    faults.bad_cell_in_episodes: 5,
    faults.bad_cell_in_table: 6,
    faults.bad_cell_in_arrays: 4,
    faults.bad_lists: 4,
    faults.bad_options: 3,
    faults.bad_reading: 2,
    table_faults.bad_table: 6,
    table_faults.bad_arrays: 5,
    policy_faults.bad_policy: 5,
    policy_faults.bad_named_policy: 4,
    policy_faults.bad_discretiser: 2,
    broken_files.damaged: 6,
    broken_files.bad_csv: 4,
    broken_files.bad_parquet: 3,
    broken_files.decimal_states: 1,
    broken_files.bad_npz: 3,
    broken_files.bad_policy_file: 3,
}


def draw_case(seed, number, folder):
    """Case `number` of a seed: half of them valid; the files are in the folder."""
    rng = np.random.default_rng([seed, number])
    if rng.random() < VALID_SHARE:
        return valid_case(rng, folder)
    weights = np.array(list(INVALID.values()), float)
    kind = list(INVALID)[rng.choice(len(INVALID), p=weights / weights.sum())]
    return kind(rng, folder)
