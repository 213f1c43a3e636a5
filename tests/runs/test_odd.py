"""Files with valid digests and odd contents, a few; `make soak` tries many."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odd_runs import make, try_one


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    make(directory)
    return directory


@settings(max_examples=100)
@given(data=st.data())
def test_odd_contents_end_in_a_result_or_one_line(data: st.DataObject, whole: Path, tmp_path_factory: Any) -> None:
    try_one(data, whole, tmp_path_factory.getbasetemp() / "odd")
