"""The tests; in all of them, and in the processes that they start, a piece that has passed cannot be read."""

import os

# Before anything imports `processor.wire.decode`, which looks once.
os.environ.setdefault("SEQMARK_TEST_BUFFERS", "1")
