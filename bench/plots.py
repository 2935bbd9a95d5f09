"""Pictures of figures, drawn by gnuplot; plot.gp has the style."""

import pathlib
import shutil
import subprocess

STYLE = pathlib.Path(__file__).resolve().parent / "plot.gp"
MISSING = "-"


def quoted(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"').replace("_", " ") + '"'


def block(name, rows):
    """Inline data: a row is a name and numbers, None where there is none."""
    lines = [" ".join([quoted(row[0])] + [MISSING if v is None else f"{v:.6g}" for v in row[1:]])
             for row in rows]
    return "\n".join([f"${name} << EOD", *lines, "EOD"])


def draw(path, size, *commands):
    """Runs gnuplot; returns whether there is a picture now."""
    if not shutil.which("gnuplot"):
        return False
    script = "\n".join([f"wide = {size[0]}; high = {size[1]}", f"load {quoted_path(STYLE)}",
                        f"set output {quoted_path(path)}", *commands, ""])
    path.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gnuplot fails for {path.name}: {done.stderr.strip()}")
    return True


def quoted_path(path):
    return "'" + str(path).replace("'", "''") + "'"


def bars(path, title, unit, groups, series, levels=(), stacked=False):
    """series: (name, [value or None for each of groups]); levels: (name, value), as lines."""
    rows = [[group] + [values[i] for _, values in series] for i, group in enumerate(groups)]
    parts = [f"$data using {n + 2}:xtic(1) title {quoted(name)} linetype {n + 1}"
             for n, (name, _) in enumerate(series)]
    parts += [f"{level:.6g} with lines title {quoted(name)} linecolor rgb '#000000' "
              f"linewidth 1 dashtype {n + 2}" for n, (name, level) in enumerate(levels)]
    return draw(path, (720, 340), block("data", rows), f"set title {quoted(title)}",
                f"set ylabel {quoted(unit)}", "set style data histograms",
                "set style histogram rowstacked" if stacked else "",
                "set xtics rotate by -25" if max(map(len, groups), default=0) > 12 else "",
                "plot " + ", ".join(parts))


def panels(path, title, unit, all_panels, x_title, log_x=False):
    """Small diagrams beside each other: (name, [(series name, [(x, y)])])."""
    columns = min(4, len(all_panels))
    lines = -(-len(all_panels) // columns)
    names = list(dict.fromkeys(name for _, series in all_panels for name, _ in series))
    commands = [f"set multiplot layout {lines},{columns} title {quoted(title)}",
                f"set xlabel {quoted(x_title)}", f"set ylabel {quoted(unit)}",
                "set logscale x 2" if log_x else "set xrange [0:105]"]
    for n, (name, series) in enumerate(all_panels):
        commands.append(f"set title {quoted(name)}")
        commands.append("set key top right inside vertical" if n == 0 else "unset key")
        parts = []
        for m, (label, points) in enumerate(series):
            commands.append(block(f"p{n}_{m}", [["", *point] for point in sorted(points)]))
            parts.append(f"$p{n}_{m} using 2:3 title {quoted(label)} "
                         f"linetype {names.index(label) + 1}")
        commands.append("plot " + ", ".join(parts))
    commands.append("unset multiplot")
    return draw(path, (260 * columns, 230 * lines + 30), *commands)
