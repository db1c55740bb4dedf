"""The page of reef has every command and option; bash completes what the table of commands has."""

import json
import os
import subprocess
import sys
import tempfile

reef, page, script = sys.argv[1:]
failures = []


def ask(*words):
    return json.loads(subprocess.run([reef, *words, "--json"], capture_output=True, check=True).stdout)


def check_page(commands):
    plain = ["groff", "-man", "-Tascii", "-P-c", "-P-b", "-P-u", "-P-o", "-rLL=4000n", page]
    shown = " ".join(subprocess.run(plain, capture_output=True, text=True, check=True).stdout.split())
    for command in commands:
        texts = [f"reef {command['name']}: {command['summary']}", *command["example"].split("\n")]
        for text in texts + [f"--{option['name']}" for option in command["options"]]:
            if " ".join(text.split()) not in shown:
                failures.append(f"{page} lacks: {text}")


def complete(lines):
    """The answers of the function that readline would call."""
    text = [f". '{script}'", f"reef() {{ '{reef}' \"$@\"; }}", "reefd() { '" + reef[:-len("tools/reef")] + "daemon/reefd' \"$@\"; }"]
    for line in lines:
        words = line.split(" ")
        quoted = " ".join("'" + word + "'" for word in words)
        text.append(f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _reef {words[0]}; "
                    'echo "${COMPREPLY[*]}"')
    out = subprocess.run(["bash", "-c", "\n".join(text)], capture_output=True, text=True, check=True)
    if out.stderr:
        failures.append(f"bash said: {out.stderr}")
    return [set(line.split()) for line in out.stdout.split("\n")[:-1]]


def check_completion(commands):
    wanted = {f"reef {command['name']} --": {f"--{option['name']}" for option in command["options"]}
              for command in commands}
    wanted |= {"reef ": {command["name"].split()[0] for command in commands} | {"--help", "--version"},
               "reef gener": {"generate", "generations"}, "reef snapshot re": {"restore", "remove"},
               "reef compress -": {"--" + option["name"] for option in ask("help", "compress")["options"]},
               "reef init --size ": {"small", "medium", "large"}, "reef init --size = m": {"medium"},
               "reef usage --layer ": set(), "reef status ./": set(), "reefd --commit-sec": {"--commit-seconds"}}
    for (line, words), found in zip(wanted.items(), complete(list(wanted))):
        if found != words:
            failures.append(f"{line}<TAB>: {sorted(found)} instead of {sorted(words)}")


every = [ask("help", *command["name"].split()) for command in ask("help")["commands"]]
check_page(every)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    check_completion(every)
for failure in failures:
    print(f"FAILED: {failure}", file=sys.stderr)
print(f"{len(every)} commands are in the manual and completed")
sys.exit(1 if failures else 0)
