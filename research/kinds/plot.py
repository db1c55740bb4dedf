"""NAME.svg of a stream that is measured at several numbers of kinds, or sizes of pieces: what grows with them."""

import plot_style  # noqa: F401
import matplotlib.pyplot as plt

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4"})

# Told apart with any colour vision, each with a shape.
LOOKS = [("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^")]


def _more(part, prefix=""):
    return part[f"{prefix}bits_per_byte"] - part[f"{prefix}own_bits_per_byte"]


# Panels: what stands at the axis, and its lines by name. Alone: beside a pool for each kind, which knows its kind.
PANELS = [
    ("bits a byte more than alone", {
        "held-out texts": lambda one: _more(one["means"]),
        "pieces in one text": lambda one: _more(one["pieces"]),
        "each piece by itself": lambda one: _more(one["pieces"], "alone_"),
    }),
    ("times as long to learn as alone", {"pool": lambda one: one["seconds"]["learn"] / one["seconds"]["own_learn"]}),
    ("bytes on disk a byte", {"pool": lambda one: one["pool_bytes"] / one["stream_bytes"]}),
    ("% of changes", {
        "found": lambda one: 100 * one["found"] / one["changes"] if one["changes"] else 100.0,
        "opened elsewhere": lambda one: 100 * one["invented"] / one["changes"] if one["changes"] else 0.0,
    }),
]


def write_svg(path, first, results):
    """results: by number, as a word, what many_kinds measured. first: what the numbers are of."""
    places = list(range(len(results)))
    figure, grid = plt.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
    for axes, (label, lines) in zip(grid.flat, PANELS):
        for (name, value), (colour, shape) in zip(lines.items(), LOOKS):
            axes.plot(places, [value(one) for one in results.values()], color=colour, marker=shape, label=name)
        axes.set_xticks(places, results)
        axes.set_xlabel(first)
        axes.set_ylabel(label)
        low, high = axes.get_ylim()
        axes.set_ylim(min(0, low), high + 0.04 * (high - min(0, low)))  # room for the highest one's shape
        if len(lines) > 1:
            axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
