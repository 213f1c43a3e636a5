import sys
from types import SimpleNamespace

import pytest

from dvdrl.record import provenance


@pytest.mark.parametrize(
    ("argv", "module", "command"),
    [
        (["/somewhere/bin/dvdrl", "train", "es", "--out", "a b"], None, "dvdrl train es --out 'a b'"),
        (["/home/me/study.py", "0..9", "--password", "secret"], None, "python study.py"),
        (["/somewhere/package/study.py", "0..9"], "package.study", "python -m package.study"),
        (["/home/me/dvdrl.py", "--password", "secret"], None, "python dvdrl.py"),
        (["/site/dvdrl/__main__.py", "train", "es"], "dvdrl.__main__", "python -m dvdrl train es"),
        ([""], None, "python"),  # at a prompt
    ],
)
def test_the_command_is_recorded_with_arguments_of_ours_alone(argv, module, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", module and SimpleNamespace(name=module))
    assert provenance()["command"] == command
