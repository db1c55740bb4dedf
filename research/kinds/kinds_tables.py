"""What research/kinds/run found, as tables in Markdown."""

# Goals in bits a byte above pools that know the kind, by the bytes of a piece.
PIECE_GOALS = {"60": 0.11, "150": 0.045, "500": 0.015}


def row(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def table(heading, rows):
    return [row(heading), "| --- |" + " ---: |" * (len(heading) - 1), *map(row, rows)]


def more(part, prefix=""):
    return part[f"{prefix}bits_per_byte"] - part[f"{prefix}own_bits_per_byte"]


# ---- streams ---------------------------------------------------------------------------------------------


def stream_row(config, name, one):
    beside = one.get("alone") or one["one_model"]["held"]
    above = [bits - beside[kind] for kind, bits in one["held"].items()]
    changes = f"{one['found']:,} of {one['changes']:,}" if "changes" in one else ""
    harm = f"{one['harm']:.4f}" if "harm" in one else f"{max(one['forgotten'].values()):.4f}" if "forgotten" in one else ""
    return [f"`{config}.ini`, {name}", f"{one['bytes'] / 1e6:.1f}", changes, one["elsewhere"], one["kinds"],
            f"{sum(above) / len(above):.4f}", f"{max(above):.4f}", harm, f"{one['disk_per_byte']:.1f}"]


def one_model_lines(name, one):
    text = [f"`{name}` cost {one['loss']:.4f} bits a byte before it was learned, in one model {one['one_model']['loss']:.4f}."]
    if "asof_change" in one:
        text.append(f"Its parts as of then changed by {one['asof_change']:g} at most. The first one costs "
                    f"{one['first_part_more']:.4f} more now than then.")
    return text


def stream_lines(documents):
    heading = ["stream", "MB", "changes found", "elsewhere", "kinds", "more than alone, mean", "worst", "most harm by others",
               "bytes on disk a byte"]
    rows, said = [], []
    for config, streams in documents.items():
        for name, one in streams.items():
            rows.append(stream_row(config, name, one))
            if "one_model" in one:
                said += one_model_lines(name, one)
    return table(heading, rows), " ".join(said)


# ---- pieces ----------------------------------------------------------------------------------------------


def piece_lines(pieces):
    heading = ["bytes of a piece", "in one text: known", "found", "more", "each by itself: known", "found", "more", "goal"]
    rows = []
    for size, one in pieces.items():
        of = one["pieces"]
        cells = [f"{of[prefix + key]:.3f}" for prefix in ("", "alone_") for key in ("own_bits_per_byte", "bits_per_byte")]
        rows.append([f"{int(size):,}", *cells[:2], f"{more(of):.3f}", *cells[2:], f"{more(of, 'alone_'):.3f}",
                     PIECE_GOALS.get(size, "")])
    return table(heading, rows)


# ---- many kinds ------------------------------------------------------------------------------------------


def losses(one):
    """What kinds lost, bits a byte, since all came back; 0 where they gained."""
    return [max(kind["later_bits_per_byte"] - kind["bits_per_byte"], 0.0) for kind in one["kinds"]]


def many_lines(counts):
    columns = {
        "kinds": lambda one: len(one["kinds"]),
        "held out": lambda one: f"{one['means']['bits_per_byte']:.4f}",
        "a pool for each": lambda one: f"{one['means']['own_bits_per_byte']:.4f}",
        "more": lambda one: f"{more(one['means']):.4f}",
        "later": lambda one: f"{one['means']['later_bits_per_byte']:.4f}",
        "changes found": lambda one: f"{one['found']} of {one['changes']}",
        "elsewhere": lambda one: one["invented"],
        "back in a known kind": lambda one: f"{100 - 100 * one['strange_bytes'] / one['back_bytes']:.1f} %",
        "in its own": lambda one: f"{100 * one['same_bytes'] / one['back_bytes']:.1f} %",
        "forgotten, most": lambda one: f"{max(losses(one)):.3f}",
        "mean": lambda one: f"{sum(losses(one)) / len(one['kinds']):.4f}",
        "pieces, more": lambda one: f"{more(one['pieces']):.4f}",
        "each by itself": lambda one: f"{more(one['pieces'], 'alone_'):.4f}",
        "bytes on disk a byte": lambda one: f"{one['pool_bytes'] / one['stream_bytes']:.1f}",
    }
    return table(list(columns), [[value(one) for value in columns.values()] for one in counts.values()])
