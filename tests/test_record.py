import sys
from types import SimpleNamespace

import pytest

from dvdrl.record import provenance


@pytest.mark.parametrize(
    ("argv", "module", "command"),
    [
        (["/somewhere/bin/dvdrl", "train", "es", "--out", "a b"], None, "dvdrl train es --out 'a b'"),
        (["study.py", "0..9"], None, "python study.py 0..9"),
        (["/somewhere/package/study.py", "0..9"], "package.study", "python -m package.study 0..9"),
        ([""], None, "python"),  # at a prompt
    ],
)
def test_the_command_is_the_one_that_was_given(argv, module, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", module and SimpleNamespace(name=module))
    assert provenance()["command"] == command
