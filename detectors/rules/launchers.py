"""Removes the prefixes that launchers and log collectors put before each line of a rank. Pure; used by
first_error.py."""

from __future__ import annotations

import re

__all__ = ["without_prefix"]

_PREFIXES_MAX = 4
_PREFIX = re.compile(
    r"""
      # [rank3]: of torch, [default3]: of torchrun --tee, [1,3]<stderr>: of mpirun
      \[[^\]\s]{1,80}\](?:<\w{1,8}>)?:[ ]?
    | \[[^\]\s]{0,40}\d[^\]\s]{0,40}\][ ]         # [pod/llm-0/main] of kubectl logs --prefix, [worker-1]
    | \([^)]{0,80}pid=[^)]{1,80}\)[ ]             # (TaskRunner pid=1234, ip=10.0.0.1) of Ray
    | std(?:out|err):[ ]                          # of accelerate test
    | \d{1,6}:[ ]?                                # 3: of srun --label
    | (?:\d{1,3}\.){3}\d{1,3}:[ ]                 # 10.0.0.1: of pdsh
    | [A-Za-z0-9.]{1,63}(?:-[A-Za-z0-9.]{1,63}){1,9}:[ ]   # worker-1: of pdsh, as DeepSpeed uses it
    | [a-z]{1,40}\d{1,6}[a-z0-9.]{0,80}:[ ]       # node03: of pdsh
    | [\w.-]{1,63}[ ]{0,40}\|[ ]                  # llm-0  | of docker compose
    | [ ]{0,40}(?:[+][ ]|[|][ ])                  # the frame that Python draws around an ExceptionGroup
    | (?P<time>
        # vLLM's logger: ERROR 04-07 00:57:46 ray_utils.py:45]
        [A-Z]{4,8}[ ]\d\d-\d\d[ ][\d:]{8}[ ]\[?[\w./]{1,80}:\d{1,6}\][ ]
        # horovodrun: Fri Sep 25 16:52:53 2020[0]<stderr>:
      | \w{3}[ ]\w{3}[ ]{1,2}\d{1,2}[ ][\d:]{8}[ ]\d{4}(?=\[)
        # 2026-11-21T09:30:00.123456789Z stderr F
      | 20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[ ]
        (?:std(?:out|err)[ ][FP][ ])?
      )
    """,
    re.VERBOSE,
)


def without_prefix(line: str) -> tuple[str, str]:
    """Returns (prefix, line without it). The prefix shows the rank. Times, and what vLLM's logger prints with
    its time, are not part of the prefix: all lines of one rank have the same prefix.

    >>> without_prefix("[default3]:[rank3]: ValueError: bad shape")
    ('[default3]:[rank3]:', 'ValueError: bad shape')
    >>> without_prefix("ValueError: bad shape")
    ('', 'ValueError: bad shape')
    """
    begin, prefix = 0, ""
    for _ in range(_PREFIXES_MAX):
        found = _PREFIX.match(line, begin)
        if found is None:
            break
        if found["time"] is None:
            prefix += found[0].strip()
        begin = found.end()
    return prefix, line[begin:]
