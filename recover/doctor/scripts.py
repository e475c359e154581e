"""Reads the simple commands of the script that a shell runs in a container. Pure.

A script with compound commands (if, for, functions) or with a here-document is not read: nobody can tell from
its words alone which of its commands runs last.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from recover.workloads.as_written import Container

__all__ = ["Command", "Script", "read", "starts"]

Command = tuple[str, ...]
"""The words and operators of one command, pipes and `||` included."""
_SHELLS = re.compile(r"(?:.*/)?(?:ba|da|k|z)?sh")
_BEFORE_SHELL = frozenset({"tini", "dumb-init", "--", "-s", "-g", "env", "exec"})
_COMPOUND = {"if", "for", "while", "until", "case", "function", "trap", "{", "(", "<<", "<<-", "<<<"}
_ENDS = frozenset({"\n", ";", "&&", "&", ";;"})


class Script(msgspec.Struct, frozen=True):
    commands: tuple[Command, ...]
    """The commands in their order. Only one if the container runs a program without a shell."""
    options: Command
    """Options of the shell."""
    where: str
    """Field of the container with the words: `command` or `args`."""


def read(container: Container) -> Script | None:
    """Returns the commands of the container; None if they cannot be read from its words."""
    words = [*container.command, *container.args]
    shell = next((n for n, word in enumerate(words) if word.rpartition("/")[2] not in _BEFORE_SHELL), None)
    if shell is None:
        return None
    if _SHELLS.fullmatch(words[shell]) is None:
        return Script((tuple(words[shell:]),), (), "command" if container.command else "args")
    for number in range(shell + 1, len(words) - 1):
        if re.fullmatch(r"-[a-z]*c", words[number]):
            where = "args" if number + 1 >= len(container.command) else "command"
            commands = _commands(words[number + 1])
            return Script(commands, tuple(words[shell + 1 : number + 1]), where) if commands else None
        if not words[number].startswith("-") and words[number - 1] not in ("-o", "+o", "-O"):
            return None  # the script is a file
    return None


def _commands(text: str) -> tuple[Command, ...]:
    """Returns the commands; empty if the script has commands that cannot be read from their words."""
    joined = text.replace("\\\n", " ").replace("\n", "\n\n")  # a comment takes one end of its line with it
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=True)
    lexer.whitespace, lexer.wordchars = " \t\r", lexer.wordchars + "$%^+,@:[]{}!"
    try:
        words = list(lexer)
    except ValueError:  # a quotation that does not end
        return ()
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _ENDS:
            commands.append([])
        else:
            commands[-1].append(word)
    found = tuple(tuple(command) for command in commands if command)
    is_compound = any(_COMPOUND.intersection(one) or one[-1:] == ("()",) for one in found)
    return () if is_compound else found


def starts(command: Sequence[str], programs: re.Pattern[str]) -> bool:
    """Whether the command runs one of these programs, also behind variables, `exec` or `timeout`."""
    for word in command:
        name = word.rpartition("/")[2]
        if programs.fullmatch(name):
            return True
        if (
            "=" not in word
            and name not in ("exec", "env", "nohup", "timeout", "numactl", "nice")
            and not (name.startswith("-") or name[:1].isdigit())
        ):
            return False
    return False
