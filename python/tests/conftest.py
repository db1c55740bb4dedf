"""What tests share: a directory of their own is pytest's tmp_path; data is real or the test says what is missing."""

import os
from pathlib import Path

import pytest



@pytest.fixture
def data():
    """The directory of real data."""
    directory = os.environ.get("REEF_DATA_DIR")
    if not directory or not Path(directory, "mnist").is_dir():
        pytest.skip("REEF_DATA_DIR names no directory with mnist")
    return Path(directory)
