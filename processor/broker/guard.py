"""Ends the JVM when the process that started it is gone, even by kill -9.

This small program is the JVM's parent. It is run by its path (``python -I -S guard.py``) and imports
nothing of Seqmark, so that it is up in milliseconds. It listens on its stdin, a pipe whose other
end only the starter holds::

    T     end the JVM with SIGTERM      K     end it with SIGKILL
    EOF   the starter is gone: SIGKILL, then remove the folder that is doomed with it

It prints the JVM's pid and exits with the JVM's exit code. The JVM writes to the guard's stderr.
As only the guard reaps the JVM, a signal can never meet a stranger with a reused pid.

Usage: guard.py STARTER_PID DOOMED_FOLDER|"" COMMAND...
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading

# A fork of the starter may hold the pipe open after it: ask for the parent's pid now and then too.
_PARENT_CHECK_S = 1.0
_PR_SET_PDEATHSIG = 1


def _die_with_guard() -> None:
    # The guard itself may be killed -9. Set in the forked child, whose parent is the main thread.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _obey(jvm: subprocess.Popen[bytes], starter: int, orphaned: threading.Event) -> None:
    while True:
        if select.select([0], [], [], _PARENT_CHECK_S)[0]:
            order = os.read(0, 1)
        else:
            order = b"" if os.getppid() != starter else b"-"
        if order == b"":
            orphaned.set()
            jvm.kill()
            return
        if order == b"T":
            jvm.terminate()
        elif order == b"K":
            jvm.kill()


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the starter is gone; return its exit code."""
    starter, doomed, *command = arguments
    # The command is the starter's own list; the process has one thread here, so that the hook,
    # which runs between fork and exec, meets no held lock.
    jvm = subprocess.Popen(  # noqa: S603 - see above
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=2,
        close_fds=False,  # the lock on the data folder goes on to the JVM
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - see above
    )
    os.write(1, f"{jvm.pid}\n".encode())
    os.close(1)
    orphaned = threading.Event()
    threading.Thread(target=_obey, args=(jvm, int(starter), orphaned), daemon=True).start()
    code = jvm.wait()
    if doomed and (orphaned.is_set() or os.getppid() != int(starter)):
        shutil.rmtree(doomed, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
