"""Points of a front as a table in Markdown."""


def mark_front(points):
    for point in points:
        point["front"] = not any(
            other["kB_per_s"] > point["kB_per_s"] and other["mean"] < point["mean"] for other in points
        )


def table(document):
    texts, points = document["texts"], document["points"]
    lines = [
        "| model | " + " | ".join(texts) + " | mean | kB/s | times the first's time | on the front |",
        "| --- |" + " ---: |" * (len(texts) + 3) + " --- |",
    ]
    for point in points:
        cells = [f"{point['bits'][name]:.4f}" for name in texts]
        times = points[0]["kB_per_s"] / point["kB_per_s"]
        lines.append(
            f"| {point['name']} | {' | '.join(cells)} | {point['mean']:.4f} | {point['kB_per_s']:.0f} | {times:.2f} | "
            f"{'yes' if point['front'] else ''} |"
        )
    return "\n".join(lines) + "\n"
