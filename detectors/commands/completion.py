"""Implements `rekindle completion SHELL`: prints a script that completes commands and options. Changes
nothing.

The script is made from the help of every installed command, so it has all that `--help` shows.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Mapping
from importlib.metadata import entry_points

from detectors.commands.arguments import Parser
from detectors.commands.main import GROUP, is_here

__all__ = ["run"]

_SHELLS = ("bash", "zsh", "fish")
_OPTION = re.compile(r"^  (-[^\s,]+(?:, -[^\s,]+)*)")
_COMMAND = re.compile(r"^  ([a-z][a-z-]*)(?:  |$)")
_ABOUT = """\
Print a script that completes commands and options in your shell.

bash: source <(rekindle completion bash)

zsh, after compinit: source <(rekindle completion zsh)

fish: rekindle completion fish | source"""


def run(args: list[str]) -> int:
    """Runs the command. Returns the exit status."""
    parser = Parser("completion", _ABOUT, positional="SHELL", example="source <(rekindle completion bash)")
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help="bash, zsh or fish.")
    shell = parser.parse_args(args).shell
    words = {"": _words("")} | _every(_words("")[0])
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](words), end="")
    return 0


Words = tuple[tuple[str, ...], tuple[str, ...]]
"""The subcommands of a command, and its options."""


def _every(names: tuple[str, ...]) -> dict[str, Words]:
    found: dict[str, Words] = {}
    for name in names:
        found[name] = _words(name)
        for inner in found[name][0]:
            found[f"{name} {inner}"] = _words(f"{name} {inner}")
    return found


def _words(called: str) -> Words:
    """Returns the words of a command, as its help lists them."""
    commands = {point.name: point for point in entry_points(group=GROUP) if is_here(point)}
    if not called:
        return tuple(sorted(commands)), ("help", "--help", "--version")
    name, *rest = called.split()
    text = io.StringIO()
    with (
        contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(io.StringIO()),
        # Argparse ends the process itself; an extra may be missing.
        contextlib.suppress(SystemExit, ImportError),
    ):
        commands[name].load()([*rest, "--help"])
    _, _, below = text.getvalue().partition("Commands:\n")
    inner = [found[1] for line in below.split("\n\n")[0].splitlines() if (found := _COMMAND.match(line))]
    _, _, below = text.getvalue().partition("Options:\n")
    rows = [found[1] for line in below.split("\n\n")[0].splitlines() if (found := _OPTION.match(line))]
    return tuple(inner), tuple(option for row in rows for option in row.split(", "))


def _bash(words: Mapping[str, Words]) -> str:
    cases = "".join(
        f"    {shlex.quote(name)}) words={shlex.quote(' '.join((*inner, *options)))} ;;\n"
        for name, (inner, options) in words.items()
    )
    return f"""\
# Completion of rekindle for bash: source <(rekindle completion bash)
_rekindle() {{
  local key="" words="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in -*) break ;; esac
    case "${{key:+$key }}$word" in
{"".join(f"      {shlex.quote(name)}) key={shlex.quote(name)} ;;{chr(10)}" for name in words if name)}\
    esac
  done
  case "$key" in
{cases}\
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  [ ${{#COMPREPLY[@]}} -eq 0 ] && COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -F _rekindle rekindle
"""


def _zsh(words: Mapping[str, Words]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(words)


def _fish(words: Mapping[str, Words]) -> str:
    lines = [
        "# Completion of rekindle for fish: rekindle completion fish | source",
        f"complete -c rekindle -f -n __fish_use_subcommand -a {shlex.quote(' '.join(words[''][0]))}",
    ]
    for name, (inner, options) in words.items():
        if not name:
            continue
        seen = " and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        when = f"-n {shlex.quote(seen.replace(' and ', '; and '))}"
        if inner:
            lines.append(f"complete -c rekindle -f {when} -a {shlex.quote(' '.join(inner))}")
        for option in options:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"complete -c rekindle {when} {flag}")
    return "\n".join(lines) + "\n"
