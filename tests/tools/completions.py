#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed completions of mixedprec, in the shells themselves: bash as users have it, zsh and fish where they are.
usage: completions.py CMAKE BUILD_FOLDER    installs the tools of a build into a temporary folder
       completions.py SHARE                 those that are installed there, such as /usr/share"""
import os
import pathlib
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time

from common import Checks

# What is typed before the key for completion, and the words that must be offered (all that begin so).
ASKED = [("pl", ["plan"]), ("recipe sh", ["show"]), ("recipe show bf16_pure_k", ["bf16_pure_kahan"]),
         ("--json inspect --ten", ["--tensors"]), ("plan --rank", ["--ranks"]),
         ("plan --recipe auto_f", ["auto_fp8"]), ("c", ["compare", "completion", "convert"])]


def run(words, share):
    """With the folder of the installation where shells look for what packages bring, and no settings of this user."""
    with tempfile.TemporaryDirectory() as home:
        # fish loads the completions of commands that it finds.
        path = f"{share.parent}/bin:{os.environ['PATH']}"
        environment = dict(os.environ, XDG_DATA_DIRS=str(share), HOME=home, XDG_CONFIG_HOME=home, PATH=path)
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment)
    return sorted(line.split("\t")[0].rstrip() for line in done.stdout.splitlines()), done.stderr


def check_bash(check, share):
    """By the package bash-completion, which finds the file by the command's name; without it the file alone."""
    loader = pathlib.Path("/usr/share/bash-completion/bash_completion")
    load = f". {share}/bash-completion/completions/mixedprec"
    if loader.exists():
        load = f"shopt -s progcomp; BASH_COMPLETION_USER_DIR=/nowhere; . {loader}; _completion_loader mixedprec"
    for typed, wanted in ASKED:
        script = (f"{load}\nCOMP_WORDS=(mixedprec {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
                  "$(complete -p mixedprec | sed 's/.*-F \\([^ ]*\\).*/\\1/'); printf '%s\\n' \"${COMPREPLY[@]}\"")
        found, errors = run(["bash", "--norc", "-c", script], share)
        check(found == wanted and not errors, f"bash completes '{typed}': {found} {errors}")


def check_fish(check, share):
    if shutil.which("fish") is None:
        print("skipped: no fish (Debian: fish)")
        return
    for typed, wanted in ASKED:
        found, errors = run(["fish", "-c", f"complete -C 'mixedprec {typed}'"], share)
        check(found == wanted and not errors, f"fish completes '{typed}': {found} {errors}")
    script = share / "fish" / "vendor_completions.d" / "mixedprec.fish"
    check(subprocess.run(["fish", "-n", script], capture_output=True).returncode == 0, "fish can read the file")


def zsh_buffer(folder, typed):
    """The line after the key for completion, in an interactive zsh: Control-X Control-B prints it."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="dumb", ZDOTDIR=str(folder), PS1="")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    start = (f"fpath=({folder} $fpath); autoload -U compinit; compinit -D -u\n"
             "tell() { print -r -- \"line=[$BUFFER]\" }; zle -N tell; bindkey '^X^B' tell; print ready=$?\n")
    text, sent, end = "", False, time.monotonic() + 600
    os.write(terminal, start.encode())
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:
                break
        # The echo of what was typed has "ready=$?", the answer a number.
        if not sent and "ready=0" in text:
            os.write(terminal, f"mixedprec {typed}\t\x18\x02".encode())
            sent = True
        if "]\r" in text.partition("line=[m")[2]:
            break
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(terminal)
    return "m" + text.partition("line=[m")[2].partition("]\r")[0], text


def check_zsh(check, share):
    if shutil.which("zsh") is None:
        print("skipped: no zsh (Debian: zsh)")
        return
    folder = next(share.glob("zsh/*/_mixedprec")).parent
    for typed, wanted in ASKED:
        line, text = zsh_buffer(folder, typed)
        before = typed.rpartition(" ")[0]
        common = os.path.commonprefix(wanted)
        good = line.rstrip() == f"mixedprec {before} {common}".replace("  ", " ")
        check(good and "command not found" not in text, f"zsh completes '{typed}': {line}" + ("" if good else text))


def main():
    check = Checks()
    with tempfile.TemporaryDirectory() as name:
        share = pathlib.Path(name) / "share"
        if len(sys.argv) == 2:
            share = pathlib.Path(sys.argv[1])
        else:
            words = [sys.argv[1], "--install", sys.argv[2], "--component", "tools", "--prefix", name]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        check_bash(check, share)
        check_fish(check, share)
        check_zsh(check, share)
    check.exit()


main()
