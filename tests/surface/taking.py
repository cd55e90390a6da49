"""The public surface, section by section, through what is public alone.

python -m tests.surface.taking --write [section ...]    after a change that users shall notice
python -m tests.surface.taking --into FOLDER [section ...]    elsewhere, to compare
"""

import argparse
from functools import partial
from pathlib import Path

from . import commands, complaints, faces, values
from .plainly import differences, read, write

FOLDER = Path(__file__).parent
SECTIONS = {
    "signatures": faces.signatures,
    "registries": faces.registries,
    "helps": faces.helps,
    "estimates": values.estimates,
    "relevance": values.relevance,
    "choices": values.choices,
    "evaluations": values.evaluations,
    "data": values.data,
    "worlds": values.worlds,
    "refusals": complaints.refusals,
    "refused-commands": complaints.refused_commands,
}
SECTIONS |= {f"command-{name}": partial(commands.taken, name) for name in commands.COMMANDS}


def path_of(section, folder=FOLDER):
    """Where a section is kept."""
    return Path(folder) / f"{section}.json"


def settled(facts, before):
    """The facts, each as it was taken before where it differs by rounding alone."""
    return {
        call: before[call]
        if call in before and not differences({call: before[call]}, {call: fact})
        else fact
        for call, fact in facts.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--write", action="store_const", dest="folder", const=FOLDER)
    where.add_argument("--into", dest="folder")
    parser.add_argument("sections", nargs="*", metavar="section")
    options = parser.parse_args()
    for section in options.sections or SECTIONS:
        facts = SECTIONS[section]()
        path = path_of(section, options.folder)
        write(settled(facts, read(path)) if path.exists() else facts, path)
        print(f"{section}: {len(facts)} facts")


if __name__ == "__main__":
    main()
