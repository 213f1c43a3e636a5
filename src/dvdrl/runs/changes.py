"""What a resumed run may change, and what it has changed: record.json has each change with its iteration.

record.json also has the options with which the run began. So a config.json that somebody has edited cannot make a run
seem to be another one.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any, Never

from dvdrl import files
from dvdrl.errors import DvdrlError, printable
from dvdrl.runs import fields, file
from dvdrl.runs.directory import Run
from dvdrl.runs.ends import End
from dvdrl.runs.training import Training


def changeable(kind: type[Training]) -> set[str]:
    """The names of the options that may change."""
    return {name for name, each in fields.facts(kind).items() if each.may_change}


def applied(config: Training[Never], changes: Mapping[str, Any], ended: Collection[End | None]) -> Training[Never]:
    """A run's options with changes; a change to None leaves an option as it is.

    If there is a new end, a stop rule in `ended`, the options that have ended the run, no longer applies.

    Raises:
        DvdrlError: an option of that name cannot change.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    possible = changeable(type(config))
    for name in given:
        if name not in possible:
            raise DvdrlError(
                f"{name}: cannot change when a run of {config.algorithm} is resumed; these can: "
                + ", ".join(sorted(possible))
            )
    rules = {"until", "until_stalled"}
    lifted: dict[str, Any] = {}
    if given.keys() & {"iterations", "steps", *rules}:
        lifted = dict.fromkeys(rules.intersection(filter(None, ended)))
    given = lifted | given
    changed = config.with_end(given.pop("iterations", None), given.pop("steps", None))
    return dataclasses.replace(changed, **given)


def refuse_less_than_done(run: Run, options: Training[Never]) -> None:
    """Refuse an end that the run has passed: its description would be shorter than what it holds."""
    last, recorded = lines[-1] if (lines := run.metrics) else {}, _recorded(run)
    # Steps first: if only they are given, the number of iterations follows from them.
    for name, done in (("steps", last.get("env_steps", 0)), ("iterations", last.get("iteration", 0))):
        end = getattr(options, name)
        before = recorded.get(name, getattr(run.config, name))
        if end is not None and end != before and isinstance(done, int) and end < done:
            raise DvdrlError(f"{name}: {run.directory} has done {done} already, got {end}")


def refuse_edited(run: Run) -> None:
    """Refuse a config.json with other options than the run was trained with, unless they may change.

    Runs of earlier versions did not record their options; those are not checked.
    """
    described = file.to_values(run.config)
    recorded = _recorded(run)
    possible = changeable(type(run.config))
    for name in sorted(recorded.keys() & described.keys() - possible):
        if recorded[name] != described[name]:
            was, now = (printable(json.dumps(each[name])[:80]) for each in (recorded, described))
            raise DvdrlError(
                f"{run.directory / 'config.json'}: {name} was {was} when the run began, and is {now} now, which would"
                " misdescribe it; put it back, or train a run of its own"
            )


def write(run: Run, options: Training[Never], iteration: int) -> None:
    """Make these the options of a run, from an iteration on. Write nothing if they are already.

    config.json comes last. If the process is killed before, the same command changes the same.
    """
    described, recorded = file.to_values(options), _recorded(run)
    new = {name: described[name] for name in sorted(changeable(type(options))) if described[name] != recorded.get(name)}
    if recorded and new:
        record = run.record
        earlier = [each for each in record.get("changes", []) if each["iteration"] != iteration]
        at_once = [each for each in record.get("changes", []) if each["iteration"] == iteration]
        now: dict[str, Any] = {"iteration": iteration}
        for each in (*at_once, new):
            now |= each
        record["changes"] = [*earlier, now]
        files.write_atomically(run.directory / "record.json", (json.dumps(record, indent=2) + "\n").encode())
    if options != run.config:
        files.write_atomically(run.directory / "config.json", file.to_json(options).encode())


def differing(options: Training[Never], others: Training[Never]) -> list[str]:
    """The names of the options that differ, except the seed."""
    mine, theirs = file.to_values(options), file.to_values(others)
    return sorted(name for name in mine.keys() | theirs.keys() if name != "seed" and mine.get(name) != theirs.get(name))


def _recorded(run: Run) -> dict[str, Any]:
    """The options with which the run was trained last; empty if it was not recorded."""
    record = run.record
    options: dict[str, Any] = record.get("options", {})
    changed = record.get("changes", [])
    whole = isinstance(options, dict) and isinstance(changed, list)
    if not whole or not all(isinstance(each, dict) and type(each.get("iteration")) is int for each in changed):
        raise DvdrlError(f"{run.directory / 'record.json'}: expected the options of a run and their changes")
    for each in changed:
        options = options | {name: value for name, value in each.items() if name != "iteration"}
    return options
