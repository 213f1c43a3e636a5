"""Builds the documentation site, without a network: `make docs`.

    python tools/site.py    collects the pages in build/site/source, and builds build/site/html

The pages are the Markdown files of this repository, in their places, so that links between them hold in both. Three
kinds of pages are made here: the notebooks, with what they show; the reference of the command line, from `--help`; and
pages for mkdocstrings, which reads the docstrings. Any warning is an error.
"""

import dataclasses
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import latex2mathml.converter
from nbconvert import MarkdownExporter

import dvdrl
from dvdrl.cli.parse import COMMANDS, help_for
from dvdrl.runs.options import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
SOURCE = SITE / "source"
RESULTS = "    # pages of results\n"
PAGES = ("*.md", "docs/**/*.md", "examples/*.md", "results/*/README.md")
OPTIONS = [kind.__name__ for kind in ALGORITHMS.values()]
REFERENCE = {
    "dvdrl": ("dvdrl", [name for name in dvdrl.__all__ if name not in (*OPTIONS, "__version__", "diversity")]),
    "diversity": ("dvdrl.diversity", [""]),
    "arms": ("dvdrl.arms", [""]),
    "bandits": ("dvdrl.bandits", [""]),
    "policies": ("dvdrl.policies", [""]),
    "tasks": ("dvdrl.tasks", ["task", "registry", "draws"]),
    "engines": ("dvdrl.engines", ["make_vec", "register_engine", "observation_names", "jax"]),
    "es": ("dvdrl.es", [""]),
    "off_policy": ("dvdrl.off_policy", [""]),
    "torch": ("dvdrl.torch", [""]),
}
"""Page -> a module, and what the page shows of it. "" is the module itself, with all its public names."""
CODE = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)\s*?$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"\$\$(?P<block>.+?)\$\$|(?<![\w$])\$(?P<inline>[^$\n]+)\$(?!\w)", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def collect() -> None:
    """Make build/site/source."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path in [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]:
        text = path.read_text()
        write(path.relative_to(ROOT), for_site(text))
        for target in LINK.findall(CODE.sub("", text)):
            linked = (path.parent / target).resolve()
            if linked.is_file() and linked.suffix != ".md":
                copy = SOURCE / linked.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(linked, copy)
    for path in sorted(ROOT.glob("docs/notebooks/*.ipynb")):
        text, resources = MarkdownExporter().from_filename(str(path), {"unique_key": path.stem})
        write(path.relative_to(ROOT).with_suffix(".md"), text)
        for name, picture in resources["outputs"].items():
            (SOURCE / "docs" / "notebooks" / name).write_bytes(picture)
    shutil.copytree(ROOT / "docs" / "assets", SOURCE / "docs" / "assets", dirs_exist_ok=True)
    write(Path("reference/cli.md"), "\n".join(command_line()))
    for name, (module, members) in REFERENCE.items():
        write(Path(f"reference/{name}.md"), "\n".join(python_page(module, members)))
    write(Path("reference/options.md"), "\n".join(options_page()))


def write(path: Path, text: str) -> None:
    """Write a page."""
    (SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / path).write_text(text)


def for_site(text: str) -> str:
    """The page as the site needs it.

    TeX between dollar signs becomes MathML, which browsers draw without a script. Bars within code lose the backslash
    that GitHub needs before them in a table.
    """
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [
            FORMULA.sub(mathml, text[end : code.start()]),
            code[0] if code["fence"] else code[0].replace(r"\|", "|"),
        ]
        end = code.end()
    return "".join([*parts, FORMULA.sub(mathml, text[end:])])


def mathml(formula: re.Match[str]) -> str:
    """One formula. One on lines of its own scrolls if the screen is narrow."""
    display = "block" if formula["block"] else "inline"
    drawn = str(latex2mathml.converter.convert(formula[display].strip(), display=display))
    return f'<div style="overflow-x: auto">{drawn}</div>' if formula["block"] else drawn


def command_line() -> Iterator[str]:
    """The page of the command line: the help of every command."""
    yield "# Command line\n\nThis page is what `--help` says, of every command.\n"
    for name in COMMANDS:
        algorithms = [[name, algorithm] for algorithm in ALGORITHMS] if name == "train" else []
        for command in [[name], *algorithms]:
            yield f"## dvdrl {' '.join(command)}\n\n```text\n{help_for([*command, '--help'])}\n```\n"


def python_page(module: str, members: list[str]) -> Iterator[str]:
    """A page with the docstrings of members of a module."""
    yield f"# {module}\n"
    inside = {path.stem for path in (ROOT / "src" / Path(*module.split("."))).glob("*.py")}
    public = getattr(importlib.import_module(module), "__all__", []) if "" in members and inside else []
    hidden = [f"{name}.{name}" for name in public if name in inside]  # mkdocstrings takes these for their modules
    for member in [*members, *hidden]:
        heading = str(bool(member)).lower()
        yield f"::: {module}{'.' * bool(member)}{member}\n    options:"
        yield f"      show_root_heading: {heading}\n      show_root_toc_entry: {heading}\n"


def options_page() -> Iterator[str]:
    """The page of the options of all algorithms: what each option is, and nothing of how it is declared."""
    kinds = [*ALGORITHMS.values()]
    bases = {kind: next((each for each in kind.__mro__[1:] if each in kinds), None) for kind in kinds}
    adding = [f"`{kind.__name__}` those of `{base.__name__}`" for kind, base in bases.items() if base]
    yield "# Options\n\nEach algorithm has a class of options, for `dvdrl.train`. They are those of the command line."
    yield "`dvdrl train ALGORITHM --help` prints the defaults; some of them depend on the task and on other options.\n"
    yield f"Options of other classes are not shown again. Beside its own, each has: {', '.join(adding)}.\n"
    for kind, base in bases.items():
        known = {field.name for field in dataclasses.fields(base)} - {*kind.__annotations__} if base else set()
        shown = [field.name for field in dataclasses.fields(kind) if field.name not in known]
        yield f"::: dvdrl.{kind.__name__}\n    options:\n      show_root_heading: true\n      members: {shown}"
        yield "      show_attribute_values: false\n      show_bases: false\n      show_labels: false\n"


def configuration() -> str:
    """The configuration, with all pages of results in the navigation."""
    names = [path.parent.name for path in sorted(ROOT.glob("results/*/README.md"))]
    entries = [f'    {{ "{name}" = "results/{name}/README.md" }},\n' for name in names]
    return (ROOT / "docs" / "zensical.toml").read_text().replace(RESULTS, "".join(entries))


def main() -> None:
    """Build the site."""
    collect()
    (SITE / "zensical.toml").write_text(configuration())
    shutil.rmtree(SITE / "html", ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    sys.exit(subprocess.run([zensical, "build", "--clean", "--strict"], cwd=SITE, check=False).returncode)


if __name__ == "__main__":
    main()
