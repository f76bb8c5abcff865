"""Takes back what a test before has said of logging."""

import logging

import pytest

from processor.ops.logs import QUIET


@pytest.fixture(autouse=True)
def logging_as_at_the_start() -> None:
    """Let each test log as a process does that has set up nothing: warnings, to what pytest listens with.

    Commands set up logging for their process, and a test that runs one in its own has it set up for all that
    come after: these would see lines of information where they ask for warnings, or for none.
    """
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    root.handlers[:] = [each for each in root.handlers if type(each) is not logging.StreamHandler]
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET)
