"""Seqmark from Python: load a config, run a worker, prove what it did.

    from seqmark import Config, run_worker, verify

    config = Config.load("clicks.toml")
    counts = run_worker(config, drain=True)
    assert verify(config).ok

Importing this is cheap: kernels, the client of the broker and pydantic are imported by the first call.
"""

from processor.errors import ConfigError, SeqmarkError, StopError
from seqmark.face import Config, Proof, run_worker, verify

__all__ = ["Config", "ConfigError", "Proof", "SeqmarkError", "StopError", "run_worker", "verify"]
