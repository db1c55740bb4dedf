"""The table at the head of README.md: what a reader wants to know first of the lifelong stream, from the same cells."""

import tables

# Methods in the order of the table, and what they are called there.
ROWS = {
    "default": "**Reef as `reef init` makes it**",
    "isolated-default": "one such model for each text; an oracle knows which to ask",
    "zpaq": "archive of the stream by `zpaq -m5`",
    "ppmd": "archive by PPMd",
    "generations": "Reef, a net alone",
    "joint": "one net, trained on the shuffled stream",
    "joint-pool": "one as large as all generations, on the shuffled stream",
    "replay-all": "one net; all old data kept and repeated",
    "finetune": "one net, fine-tuned",
}
HEADING = ["", "bits a byte", "forgotten, mean", "of one text", "parameters, M", "on disk, MB", "CPU s"]


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def forgotten(value):
    return "" if value is None else f"{value:.5f}" if 0 < abs(value) < 0.001 else number(value, 4 if value < 1 else 1)


def row(group):
    mean = {key: figure["mean"] for key, figure in group["figures"].items()}
    return [
        ROWS[group["method"]],
        number(mean["final_mean"], 3),
        forgotten(mean["forgetting_max"]),
        forgotten(group["forgetting_worst"]),
        number(mean["parameters_millions"], 1),
        number(mean["pool_megabytes"], 0),
        number(mean["cpu_seconds"], 0),
    ]


def table(groups):
    """Of the first order. Means over seeds; of one text, the most in any run."""
    of_method = {group["method"]: group for group in groups if group["order"] == 0}
    lines = tables.table(HEADING, [row(of_method[name]) for name in ROWS if name in of_method])
    return ["", *lines]
