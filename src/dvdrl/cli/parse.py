"""From the words of a command line to the command that is to run, or to the page of help that is asked for.

A command line that cannot be read is one line that says why.
"""

import contextlib
import dataclasses
import difflib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Never, get_type_hints

import tyro
from tyro.conf import DisallowNone, FlagCreatePairsOff, OmitArgPrefixes, Positional

from dvdrl.cli import page
from dvdrl.cli.adapt import Adapt
from dvdrl.cli.read import Evaluate, Export, Render, Report
from dvdrl.cli.studies import Bench, Reproduce, Tasks
from dvdrl.cli.train import Repeat, Resume, Train
from dvdrl.errors import DvdrlError
from dvdrl.runs.options import ALGORITHMS
from dvdrl.runs.presets import filled_in
from dvdrl.runs.training import Training

COMMANDS: dict[str, type[Any]] = {
    "train": Train,
    "resume": Resume,
    "evaluate": Evaluate,
    "adapt": Adapt,
    "report": Report,
    "render": Render,
    "export": Export,
    "reproduce": Reproduce,
    "bench": Bench,
    "tasks": Tasks,
}
_ABOUT = "Diversity via Determinants: train populations of policies that are all good and all different."
_WRONG = (
    r"Error parsing (?P<flag>\S+): no type matching .* could be instantiated from \[(?P<got>.*)\]$",
    r"Error parsing (?P<flag>\S+): (?:invalid literal for int|could not convert string to float).*?: (?P<got>.*)$",
    r"invalid choice (?P<got>.*) for argument '(?P<flag>\S+)'",
)
"""What tyro says of a value that is not of an option's type."""
_ASKED = {"-h", "--help"}
_CONFIG = "FILE", "Repeat the run with this config.json: `dvdrl train --config FILE [--out DIR]`."


def help_for(words: Sequence[str]) -> str | None:
    """The page of help that the words ask for; None if they do not."""
    if not _ASKED.intersection(words):
        return None
    path = [word for word in words if not word.startswith("-")]
    if not path or path[0] not in COMMANDS:
        lines = {name: page.first_line(kind) for name, kind in COMMANDS.items()}
        return page.overview("dvdrl", _ABOUT, lines, [("--version", "Show the version.")])
    if path[0] != "train":
        return page.page(f"dvdrl {path[0]}", COMMANDS[path[0]])
    if _repeats(words):
        return page.page("dvdrl train", Repeat)
    if len(path) < 2 or path[1] not in ALGORITHMS:
        lines = {name: page.first_line(kind) for name, kind in ALGORITHMS.items()}
        about = "Train a population. Each algorithm has options of its own."
        return page.overview("dvdrl train", about, lines, [(f"--config {_CONFIG[0]}", _CONFIG[1])])
    kind = ALGORITHMS[path[1]]
    defaults = _defaults(kind, [word for word in words[words.index(path[1]) + 1 :] if word not in _ASKED])
    about = f"The defaults are those for {defaults.task}"
    preset = getattr(defaults, "preset", None)
    about += f" with the preset {preset}" if preset else ""
    about = f"{about}. Options before --help are taken into account."
    return page.page(f"dvdrl train {path[1]}", kind, defaults=defaults, about=about)


def parsed(words: Sequence[str]) -> Callable[[], None]:
    """The command with its options.

    Raises:
        DvdrlError: the words are no command, or an option is missing, unknown or not as it must be.
    """
    command: Callable[[], None]
    name, rest = _chosen("", words, COMMANDS)
    if name != "train":
        command = _read(name, COMMANDS[name], rest)
        return command
    if _repeats(rest):
        command = _read(name, Repeat, rest)
        return command
    algorithm, rest = _chosen(name, rest, ALGORITHMS)
    return Train(_read(f"{name} {algorithm}", ALGORITHMS[algorithm], rest))


def _repeats(words: Sequence[str]) -> bool:
    return any(word.split("=")[0] == "--config" for word in words)


def _chosen(command: str, words: Sequence[str], among: Iterable[str]) -> tuple[str, Sequence[str]]:
    """The command that the first word names, and the rest."""
    names, where = list(among), f"{command}: " if command else ""
    if not words:
        advice = f"`{' '.join(['dvdrl', *command.split()])} --help` explains them"
        raise DvdrlError(f"{where}expected one of {', '.join(names)}; {advice}")
    if words[0] not in names:
        close = difflib.get_close_matches(words[0], names, n=1) if not words[0].startswith("-") else []
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(names)}"
        raise DvdrlError(f"{where}there is no {words[0]!r}; {hint}")
    return words[0], words[1:]


def _defaults(kind: type[Training], words: Sequence[str]) -> Training[Never]:
    """The options of an algorithm with the defaults that belong to those that are given."""
    given = [*words] if any(word.split("=")[0] == "--task" for word in words) else ["--task", "HalfCheetah-v5", *words]
    try:
        return filled_in(_read("train", kind, given))
    except DvdrlError:
        return filled_in(kind(task="HalfCheetah-v5"))


def _read(command: str, kind: type[Any], words: Sequence[str]) -> Any:
    """An object of a class whose fields are options."""
    said, whole, advice = io.StringIO(), kind, f"see `dvdrl {command} --help`"
    if issubclass(kind, Training):
        generic: Any = kind
        whole = generic[None]
    try:
        with contextlib.redirect_stderr(said), _wide():
            options, unknown = tyro.cli(
                whole,
                args=list(words),
                config=(OmitArgPrefixes, FlagCreatePairsOff, DisallowNone),
                return_unknown_args=True,
            )
    except SystemExit as end:
        if not end.code:
            raise
        unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in _flags(kind)]
        if not unknown:
            raise DvdrlError(f"{command}: {_one_line(said.getvalue(), kind)}; {advice}") from end
    if unknown:
        raise DvdrlError(f"{command}: {_not_known(unknown, kind)}; {advice}")
    return options


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    """Have lines that are read here broken nowhere."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _flags(kind: type[Any]) -> dict[str, str]:
    """What stands for a value of each option of a class, by the option as it is typed; arguments have their names."""
    hints, found = get_type_hints(kind, include_extras=True), {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        positional = Positional in getattr(hint, "__metadata__", ())
        name = field.name if positional else page.invocation(field.name, hint, field.default).split()[0]
        found[name] = page.metavar(hint)
    return found


def _not_known(words: Sequence[str], kind: type[Any]) -> str:
    flag = words[0].split("=")[0]
    if not flag.startswith("-"):
        return f"expected no {words[0]!r}"
    close = difflib.get_close_matches(flag.replace("_", "-"), _flags(kind), n=1)
    return f"there is no option {flag}" + (f", did you mean {close[0]}?" if close else "")


def _one_line(box: str, kind: type[Any]) -> str:
    """What a box of tyro says, without its frame and without the help that it repeats.

    Where a terminal has only ASCII, the frame is blank, and a rule of hyphens is below the title.
    """
    title, *lines = [line[1:].removeprefix(" ").rstrip(" │") for line in box.splitlines()]
    rules = re.compile(r"─|---")
    lines = lines[1:] if lines and rules.match(lines[0]) else lines
    text = list(itertools.takewhile(lambda line: line.strip() and not rules.match(line), lines))
    if "Required options" in title:
        names = [line.split()[0] for line in text[1:] if re.match(r" {4}\S", line)]
        return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} required"
    said = " ".join(map(str.strip, text)).rstrip(".")
    for pattern in _WRONG:
        if (found := re.match(pattern, said)) and found["flag"] in _flags(kind):
            return f"{found['flag']}: expected {_flags(kind)[found['flag']]}, got {found['got']}"
    return said[:1].lower() + said[1:]
