"""What stands for what when the documentation is run, and what other tests run.

A page is named by its path, None is any page. Every entry must be of use: one that no page has any more fails the test.
"""

# Sizes at which a model learns within a moment, and boundaries without a long stream to find them in.
TINY = ("--no-probe --layers 1 --d-model 16 --attention-heads 2 --context 32 --batch 2 --heads 1 --topk 2 --d-key 8 "
        "--side 8 --side-new 8 --adapters 4 --reservoir-bytes 8192 --reservoir-window 128")
SHORT = "--boundaries budget --boundary-bytes 3072"

README, GUIDE, OPERATING, PROTOCOL = "README.md", "docs/GUIDE.md", "docs/OPERATING.md", "docs/PROTOCOL.md"
LIBRARY, TESTING, CONTRIBUTING = "docs/LIBRARY.md", "tests/README.md", "CONTRIBUTING.md"

# (page, pattern, what stands for it, why). In this order. @WORLD@, @PORT@, @REDIS@, @REEF@ are places of this run.
REPLACED = [
    (None, r"/var/log/app\b(?!\.log)", "log", "a directory of logs"),
    (None, r"/var/log/app\.log", "log/app.log", "a log"),
    (None, r"(?<!\w)/(etc/reef|var/lib/reef)/", r"\1/", "pools and configuration of the service, in the page's folder"),
    (None, r"runuser -u \w+ -- ", "", "everything is one user's here"),
    (None, r"systemctl enable --now reefd@(\w+)", r"reefd --config etc/reef/\1.ini", "what the unit runs"),
    (None, r"systemctl start reefd@(\w+)", r"reefd --config etc/reef/\1.ini", "the same"),
    (None, r"systemctl stop reefd@(\w+)", r"reef stop var/lib/reef/\1", "what the unit does, and it waits for the end"),
    (None, r"(?<!\w)/srv/backup/", "backup/", "another disk"),
    (None, r"(?<=var/lib/reef/)news(?= --gates| --matrix)", "../../../two.pool", "it has two generations"),
    (OPERATING, r"--as-of (?:yesterday|'[^']*')", "--as-of today", "the pool was made a moment ago"),
    (OPERATING, r"mpirun --hostfile hosts", "mpirun --oversubscribe --allow-run-as-root --bind-to none", "one machine"),
    (None, r"journalctl -f ", "tail -n +1 -f log/web.log ", "a log that grows"),
    (None, r"\b8080\b", "@PORT@", "a port that is free"),
    (None, r"redis-cli ", "redis-cli -p @REDIS@ ", "the Redis server of this test"),
    (None, r"redis://127.0.0.1/", "redis://127.0.0.1:@REDIS@/", "the same"),
    (None, r"\breef init ([^&|;\n]*--model vector[^&|;\n]*)", r"reef init \1 --side 4 --memory 50", "a small model"),
    (None, r"\breef init ((?![^&|;\n]*--(?:model|from|boundaries|dry-run)\b)[^&|;\n]*)",
     rf"reef init \1 {TINY} {SHORT} ", "a small model, and boundaries in a short stream"),
    (None, r"\breef init ((?=[^&|;\n]*--boundaries given)[^&|;\n]*)", rf"reef init \1 {TINY} ", "a small model"),
    (None, r"\breef init ([^&|;\n]*--dry-run)", r"reef init \1 --no-probe", "training steps take long with sanitizers"),
    (None, r"\breef bench step", f"reef bench step --steps 2 {TINY.replace('--no-probe ', '')}", "a small model"),
    (None, r"\breef bench ranks [^\n]*", f"reef bench ranks --steps 2 --repeat 1 {TINY.replace('--no-probe ', '')}",
     "a small model"),
    (None, r"(reef consolidate .*--yes)", r"\1 --steps 4", "a moment"),
    (None, r"(tools/bench/continual/run \S+) --data DIR", r"\1 --list --quick --reef @REEF@ --data data",
     "its cells are listed; test_continual_bench trains some"),
    (None, r"(reef experiment \w+ \S+) --data TEXTS", r"\1 --plan --quick --data data/text",
     "its cells are listed; test_tools_experiment trains some"),
    ("docs/LEARNING.md", r"/usr/share/games/fortunes", "fortunes", "sayings that every machine has"),
    (GUIDE, r"--truth 150000", "--truth 15000", "a short stream"),
    ("docs/LEARNING.md", r"head -c 440000", "head -c 20000", "a short stream"),
    (CONTRIBUTING, r"clang-format -i FILE\.\.\.", "clang-format -i one.c", "a file of the change"),
]

# (page, beginning of the command as it stands there, test that runs it). A name of ctest, or a program.
ELSEWHERE = [
    (README, "tools/demo", "tests/packages/fresh"),
    (README, "tools/test", "tests/packages/fresh"),
    (README, "cmake --preset package", "tests/packages/live"),
    (README, "sudo apt install ./build/package", "tests/packages/live"),
    (README, "cmake --preset release", "tests/packages/fresh"),
    (GUIDE, "cmake --preset release", "tests/packages/fresh"),
    (OPERATING, "apt install ./reef_", "tests/packages/live"),
    (LIBRARY, "cmake --preset release", "test_installed"),
    (LIBRARY, "cc loss.c", "test_installed"),
    (LIBRARY, "```c", "test_installed"),
    (LIBRARY, "```python", "test_python"),
    (LIBRARY, "cmake --build build/release --target libreef_forward", "test_python"),
    (LIBRARY, "REEF_LIBRARY=build/release/libreef/libreef.so.0", "test_python"),
    (GUIDE, "python3 python/examples/split_mnist.py", "test_python"),
    ("docs/PAPER.md", "tools/bench/paper/run --data TEXTS", "test_paper"),
    (CONTRIBUTING, "tools/test", "tests/packages/fresh"),
    (CONTRIBUTING, "tools/fuzz", "test_fuzz"),
    (TESTING, "tools/fuzz", "test_fuzz"),
    (TESTING, "build/fuzz/tests/robustness/fuzz/fuzz_http FILE", "test_fuzz_http"),
    (TESTING, "REEF_LOGS_LINES=2000 REEF_LOGS_SEED=2 tests/scripts/logs/run", "test_logs"),
    (TESTING, "tests/robustness/damage/run", "test_damage"),
    (TESTING, "tests/robustness/divided/run", "test_divided"),
    (TESTING, "tests/robustness/power_loss/run", "tests/robustness/power_loss/run"),
    (TESTING, "tests/stress/run kill", "test_stress_kill"),
    (TESTING, "tests/stress/run soak", "test_stress_soak"),
    (TESTING, "tests/robustness/fault/run --long", "test_fault_kill, test_fault_disk, test_fault_io, test_fault_memory"),
]

# (page, beginning of the command, why nothing runs it)
LEFT_OUT = [
    (TESTING, "tests/packages/live", "wants root, another server and minutes; run by hand before a release"),
    (TESTING, "tests/packages/fresh", "the same"),
    (TESTING, "cmake -S . -B build/fault", "builds everything once more, only to have fail points in a release build"),
    (CONTRIBUTING, "clang-tidy -p build/dev FILE", "looks at a build with its sources for minutes"),
]

# Commands that make what a page takes for granted.
BEFORE = {
    GUIDE: ["mkdir -p etc/reef var/lib/reef", f"reef init var/lib/reef/news {TINY} --boundaries given",
             "printf '[reefd]\\npool = var/lib/reef/news\\nsource = file:notes.txt\\nstay = yes\\n' >etc/reef/news.ini"],
    OPERATING: ["mkdir -p etc/reef var/lib/reef backup", "cp held-out.txt old.txt; cp held-out.c new.txt",
                f"reef init two.pool {TINY} --boundaries given", "reefd --pool two.pool --source file:english.txt",
                "reef seal two.pool", "reefd --pool two.pool --source file:code.c"],
    PROTOCOL: ["reef init reef.pool --model vector --inputs 3 --side 4", "reefd --pool reef.pool --source push:web --quiet &"],
    "docs/LEARNING.md": ["mkdir fortunes",
                             "for name in people science computers definitions literature; do"
                             " sed 's/$/\\n%/' english.txt >fortunes/$name; done"],
    CONTRIBUTING: ["cp base/error.c one.c"],
}

# Programs that a command may need and a machine may lack, with their Debian packages.
NEEDS = {
    "nc": "netcat-openbsd", "curl": "curl", "openssl": "openssl", "redis-cli": "redis-server", "clang-format": "clang-format",
    "shellcheck": "shellcheck", "mpirun": "openmpi-bin",
}
