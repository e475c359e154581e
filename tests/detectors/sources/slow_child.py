"""A child for test_child.py. A question is the number of its calls; after a minus sign the last call hangs.
`close` closes the output but does not end the child, `flood` is answered with too much, and at `half` the
child dies in its answer."""

from __future__ import annotations

import os
import sys
import time

from detectors.sources.calls_file import tell_call

CALL_S = 0.3


def main() -> None:
    calls = int(sys.argv[1])
    for line in sys.stdin:
        if line == "close\n":
            os.close(1)
            time.sleep(600)
        if line == "flood\n":
            print("x" * 2**21, flush=True)
        if line == "half\n":
            os.write(1, b"answered 1")
            os._exit(3)
        asked = int(line)
        for number in range(abs(asked)):
            tell_call(calls, f"call {number}")
            time.sleep(600 if -asked == number + 1 else CALL_S)
        print(f"answered {asked}", flush=True)


if __name__ == "__main__":
    main()
