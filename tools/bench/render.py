"""Render the JSON of `reef bench` as tables in a Markdown file and plots as SVG.

usage: /usr/bin/python3 tools/bench/render.py JSON_DIRECTORY MARKDOWN_FILE IMAGE_DIRECTORY

Replaces what stands between `<!-- measured: NAME -->` and `<!-- end -->` in the Markdown file, for each
NAME whose JSON is there: peer, scale, step. Everything else in the file stays as it is.
"""

import json
import pathlib
import re
import sys
import textwrap

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "reef",  # the same figures give the same file
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#6b6b6b",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e4e4e4",
    }
)
import matplotlib.pyplot as plt  # noqa: E402

INK, BLUE, PALE, RED = "#222222", "#1d5fa3", "#a9c6e3", "#c8402f"
PART_COLOURS = [BLUE, PALE, "#6b6b6b", RED, "#e3a79f", "#222222", "#4f9d69", "#c9a227"]


# ---- words -------------------------------------------------------------------------------------------


def count(value):
    """Tokens per second with three digits that matter."""
    return "-" if value is None else f"{float(f'{value:.3g}'):,.0f}"


def number(value, digits=2):
    return "not measured" if value is None else f"{value:.{digits}f}"


def size(value):
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "| " + " | ".join("---" for _ in heading) + " |"]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def wrapped(line):
    """Prose and items in the documents' width; tables and pictures stay one line."""
    if line.startswith(("|", "!")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def machine(document):
    return (
        f"{document['kernels']} kernels, OpenBLAS for {document['blas']}, {document['threads']} threads"
        if "blas" in document
        else f"{document['kernels']} kernels, {document['threads']} threads"
    )


def measured_with(source, name):
    command = source / f"{name}.command"
    return f"`{command.read_text().strip()}`" if command.exists() else f"`reef bench {name}`"


# ---- peer --------------------------------------------------------------------------------------------


def peer(source, images, document):
    one, many = document["by_threads"][0], document["by_threads"][-1]
    lines = [
        f"{measured_with(source, 'peer')}: N = {document['side']} x {document['side']}, width "
        f"{document['d_model']}, {document['heads']} heads of {document['topk']}, "
        f"{document['tokens']} tokens ({machine(document)}).",
        "",
    ]
    goals = [
        ("forward, times the baseline", "at least 12", document.get("rival_forward_ratio")),
        ("training step, times the baseline", "at least 16", document.get("rival_step_ratio")),
        ("forward, share of the composite limit", "at least 0.75", document["forward_limit_share"]),
        (
            "nine tenths sealed in f32, step times faster",
            "at least 1.8",
            document.get("sealed90_step_ratio"),
        ),
        (
            "nine tenths sealed in bf16, step times faster",
            "at least 1.8",
            document.get("sealed90_bf16_step_ratio"),
        ),
        ("bf16 rows against f32, forward", "at least 1.4", document.get("bf16_forward_ratio")),
        ("bf16 rows against f32, its experts alone", "", document.get("bf16_experts_ratio")),
        ("int8 rows against f32, forward", "", document.get("int8_forward_ratio")),
        ("int8 rows against f32, its experts alone", "", document.get("int8_experts_ratio")),
        ("retrieval with the first pass, times faster", "at least 2", document.get("first_pass_retrieval_ratio")),
        ("two threads against one, step", "at least 1.8", document["thread_speedup"]),
        ("two threads against one, forward", "at least 1.8", document.get("forward_thread_speedup")),
        ("AVX2 against AVX-512, forward", "at least 0.6", document.get("avx2_forward_ratio")),
        ("AVX2 against AVX-512, step", "at least 0.6", document.get("avx2_step_ratio")),
    ]
    lines += table(["figure", "goal", "measured"], [(a, b, number(c)) for a, b, c in goals])
    baseline = document.get("rival") or {}
    names = ["retrieval", "forward", "step"]
    lines += [""] + table(
        ["tokens/s", "1 thread", f"{many['threads']} threads", "baseline"],
        [
            (
                name,
                count(one[f"{name}_tokens_per_s"]),
                count(many[f"{name}_tokens_per_s"]),
                count(baseline.get(f"{name}_tokens_per_s")),
            )
            for name in names
        ],
    )
    limits = [
        ("products of the query network, GFLOP/s", "gemm_query_gflops"),
        ("products of the scores, GFLOP/s", "gemm_scores_gflops"),
        ("reading in order, GB/s", "sequential_gb_per_s"),
        ("random rows, small pages, GB/s", "gather_gb_per_s"),
        ("random rows, huge pages, GB/s", "gather_huge_gb_per_s"),
    ]
    lines += [""] + table(
        ["what the machine does", "1 thread", f"{many['threads']} threads"],
        [
            (text, f"{one['limits'][key]:.1f}", f"{many['limits'][key]:.1f}")
            for text, key in limits
        ],
    )
    lines += ["", "![Where the time of a token goes](img/bench-parts.svg)"]
    plot_parts(images / "bench-parts.svg", one, many)
    return lines


def plot_parts(path, one, many):
    bars = [
        (f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}, {text}", run[key])
        for text, key in (("step", "step_us_per_token"), ("forward", "forward_us_per_token"))
        for run in (many, one)
    ]
    figure, axes = plt.subplots(figsize=(8.5, 3.2), constrained_layout=True)
    parts = [part for part in bars[0][1] if any(bar[1].get(part) for bar in bars)]
    for colour, part in zip(PART_COLOURS, parts):
        left = [sum(bar[1].get(p) or 0 for p in parts[: parts.index(part)]) for bar in bars]
        width = [bar[1].get(part) or 0 for bar in bars]
        axes.barh([b[0] for b in bars], width, left=left, color=colour, label=part.replace("_", " "))
    axes.set_xlabel("microseconds per token")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.22), ncol=4, frameon=False, fontsize=9)
    save(figure, path)


# ---- scale -------------------------------------------------------------------------------------------


def scale(source, images, document):
    points = document["points"]
    lines = [f"{measured_with(source, 'scale')} ({machine(document)}).", ""]
    lines += table(
        ["experts", "width", "rows", "microseconds per token", "retrieval", "experts", "in memory"],
        [
            (
                f"{p['side']} x {p['side']}",
                p["d_model"],
                f"{p['dtype']}, {p['residency']}",
                f"{p['us_per_token']:.1f}",
                f"{p['us_retrieval']:.1f}",
                f"{p['us_experts']:.1f}",
                size(p["resident_bytes"]),
            )
            for p in points
        ],
    )
    if document["exhaustive"]:
        kinds = {"sums": "every sum of two sub-key scores", "keys": "a key of each expert"}
        lines += [""] + table(
            ["retrieval among", "scores", "microseconds per token", "product keys", "times"],
            [
                (
                    f"{p['side']} x {p['side']}",
                    kinds[p["scores"]],
                    f"{p['us_per_token']:.0f}",
                    f"{p['us_per_token_product_keys']:.1f}",
                    f"{p['us_per_token'] / p['us_per_token_product_keys']:.1f}",
                )
                for p in document["exhaustive"]
            ],
        )
    for p in points:
        if p["residency"] == "mapped":
            lines += [
                "",
                f"{p['side']} x {p['side']} experts of width {p['d_model']} are {size(p['row_bytes'])} on disk: "
                f"{count(1e6 / p['us_per_token_cold'])} tokens/s with nothing in the system's cache, "
                f"{count(p['tokens_per_s'])} after; a process that may hold {size(p['limit_bytes'])} held "
                f"{size(p['resident_bytes'])} at most.",
            ]
    ratio = document.get("scale_ratio")
    if ratio is not None:
        lines += [
            "",
            f"16 times the experts (4096 x 4096 against 1024 x 1024, width 64, bf16, resident) cost "
            f"{ratio:.2f} times the time per token (goal: at most 2.5).",
        ]
    lines += ["", "![Time per token over the number of experts](img/bench-scale.svg)"]
    plot_scale(images / "bench-scale.svg", document)
    return lines


def plot_scale(path, document):
    figure, axes = plt.subplots(figsize=(8.5, 4.2), constrained_layout=True)
    series = {}
    for p in document["points"]:
        series.setdefault(p["d_model"], []).append(p)
    above = True
    for colour, (width, points) in zip([BLUE, RED, "#4f9d69"], series.items()):
        points.sort(key=lambda p: p["side"])
        x, y = [p["side"] ** 2 for p in points], [p["us_per_token"] for p in points]
        axes.plot(x, y, color=colour, marker="o", label=f"product keys, width {width}")
        for p in points:
            axes.annotate(
                p["dtype"] if p["residency"] == "resident" else f"{p['dtype']}, {p['residency']}",
                (p["side"] ** 2, p["us_per_token"]),
                textcoords="offset points",
                xytext=(0, 8 if above else -15),
                ha="center",
                fontsize=8,
                color=colour,
            )
        above = False
    for kind, text, marker in (
        ("sums", "all experts, sums of sub-key scores", "s"),
        ("keys", "all experts, a key of each", "^"),
    ):
        found = [p for p in document["exhaustive"] if p["scores"] == kind]
        if found:
            axes.plot(
                [p["experts"] for p in found],
                [p["us_per_token"] for p in found],
                color="#6b6b6b",
                linestyle="--",
                marker=marker,
                label=f"retrieval alone: {text}",
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.margins(y=0.12)  # room for what is written below the lowest point
    axes.set_xlabel("experts")
    axes.set_ylabel("microseconds per token")
    sides = sorted({p["side"] for p in document["points"]})
    axes.set_xticks([s**2 for s in sides], [f"{s}²" for s in sides])
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.12), ncol=2, frameon=False, fontsize=9)
    save(figure, path)


# ---- step --------------------------------------------------------------------------------------------


def step(source, images, documents):
    rows, lines = [], []
    for name, text in (("step", "PEER in the middle"), ("dense", "dense")):
        document = documents.get(name)
        if document is None:
            continue
        lines.append(f"- {text}: {measured_with(source, name)} ({machine(document)})")
        rows.append(
            (
                text,
                count(document["step_tokens_per_s"]),
                count(document.get("rival_step_tokens_per_s")),
                number(document.get("rival_step_ratio")),
            )
        )
    lines += [""] + table(["a training step, tokens/s", "Reef", "PyTorch", "ratio"], rows)
    lines += ["", "The goal is a ratio of at least 3 with PEER in the middle."]
    return lines


# ---- the file ----------------------------------------------------------------------------------------


def save(figure, path):
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    print(path)


def replace(text, name, lines):
    pattern = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"no '<!-- measured: {name} -->' in the Markdown file")
    body = "\n".join(wrapped(line) for line in lines)
    return pattern.sub(lambda found: f"{found[1]}\n{body}\n\n{found[2]}", text)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, target, images = (pathlib.Path(argument) for argument in sys.argv[1:])
    documents = {
        path.stem: json.loads(path.read_text())
        for path in source.glob("*.json")
        if path.stem in ("peer", "scale", "step", "dense")
    }
    if not documents:
        sys.exit(f"no JSON of reef bench in {source}")
    text = target.read_text()
    if "peer" in documents:
        text = replace(text, "peer", peer(source, images, documents["peer"]))
    if "scale" in documents:
        text = replace(text, "scale", scale(source, images, documents["scale"]))
    if "step" in documents or "dense" in documents:
        text = replace(text, "step", step(source, images, documents))
    target.write_text(text)
    print(target)


if __name__ == "__main__":
    main()
