"""Slope plots: the same canaries under two treatments, a line from one reading of each to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from markupsafe import Markup

from davylamp.report import svg
from davylamp.report.marks import bits_levels, bits_mark, exposure_axis
from davylamp.report.panels import Entry, Figure, Panel
from davylamp.report.study import Compared, StudyResult
from davylamp.report.text import number, percent, shorten
from davylamp.report.view import Group

UNIT = "bits"
"""Comparisons of other units are not drawn: of successes, which are 0 or 1, all lines would lie on four."""
SIZE = (430.0, 340.0)


def slopes(study: StudyResult, groups: Sequence[Group]) -> Figure | None:
    """A panel for each comparison of exposures; nothing where there is none.

    Args:
        study: what was compared.
        groups: the models; where the secrets of all are ranked among equally many candidates, the ceiling and the
            baseline are drawn too.
    """
    drawn = [each for each in study.compared if each.unit == UNIT and each.pairs]
    if not drawn:
        return None
    found = sorted({seed for each in drawn for seed, _, _ in each.pairs})
    seeds = {seed: index for index, seed in enumerate(found)}
    group = groups[0] if len(groups) == 1 else None
    most = max(value for each in drawn for _, over, of in each.pairs for value in (over, of))
    panels = tuple(
        Panel(each.name, _slope(f"slope{index}", each, seeds, most, group), f"{each.statement}.")
        for index, each in enumerate(drawn)
    )
    finding = "Each thin line is one canary, from its exposure on the one side to its exposure on the other."
    if len(seeds) > 1:
        finding += " Lines between marks join the medians of one seed, told by colour and shape."
    finding += (
        " The thickest line joins the medians over all, whose values stand beside it; their difference is not the "
        "median of the differences, which the sentence below each plot gives."
    )
    legend = tuple(Entry(index, f"seed {seed}") for seed, index in seeds.items())
    return Figure(finding, panels=panels, legend=legend if len(legend) > 1 else ())


def sides(what: Compared, seed: int) -> tuple[str, str]:
    """Medians of both sides of a comparison in one seed (rates of successes); empty where no pairs were kept."""
    found = []
    for index in (1, 2):
        values = [pair[index] for pair in what.pairs if pair[0] == seed]
        if not values:
            found.append("")
        else:
            found.append(percent(sum(values) / len(values)) if what.unit == "success" else number(median(values)))
    return found[0], found[1]


def _slope(key: str, what: Compared, seeds: Mapping[int, int], most: float, group: Group | None) -> Markup:
    ceiling = group.ceiling if group is not None else most
    top, ticks = exposure_axis(ceiling or 1.0)
    width, height = SIZE
    frame = svg.Frame(width, height, 46, width - (62 if group else 14), 38, height - 34, top)
    ends = frame.left + 62, frame.right - 62
    body: list[Markup] = [svg.text(8, 18, "exposure, bits", class_="axis")]
    body += svg.grid(frame, ticks, bits_mark)
    if group is not None:
        body += _levels(frame, group)
    sides = what.sides or ("compared with", "compared")
    for x, words in zip(ends, sides, strict=True):
        body.append(svg.line(x, frame.top, x, frame.bottom, "grid"))
        body.append(svg.text(x, frame.bottom + 22, shorten(words, 26), class_="axis middle"))
    for seed, over, of in what.pairs:
        label = f"seed {seed}: {number(over)} to {number(of)} bits"
        line = svg.path([(ends[0], frame.y(over)), (ends[1], frame.y(of))], f"thread s{svg.hue(seeds[seed])}")
        body.append(svg.el("g", svg.el("title", label), line))
    if len(seeds) > 1:
        for seed, index in seeds.items():
            body += _medians(frame, ends, [pair[1:] for pair in what.pairs if pair[0] == seed], seed, index)
    body += _overall(frame, ends, (what.second_median, what.first_median))
    return svg.drawing(f"{key}-{svg.HALF}", what.name, what.statement, SIZE, body, svg.HALF)


def _levels(frame: svg.Frame, group: Group) -> Iterator[Markup]:
    for level in bits_levels(group.candidates, group.ceiling, group.baseline):
        y = frame.y(level.value)
        yield svg.line(frame.left, y, frame.right, y, f"level {level.class_}")
        for index, words in enumerate(level.short):
            yield svg.text(frame.right + 8, y - 3.5 + 15 * index, words, class_=f"side {level.class_}")


def _medians(
    frame: svg.Frame, ends: tuple[float, float], pairs: Sequence[tuple[float, float]], seed: int, index: int
) -> Iterator[Markup]:
    """The medians of one seed, joined."""
    if not pairs:
        return
    middles = median(over for over, _ in pairs), median(of for _, of in pairs)
    places = [(x, frame.y(value)) for x, value in zip(ends, middles, strict=True)]
    yield svg.path(places, f"seed s{svg.hue(index)} dash{svg.dash(index)}")
    for (x, y), value in zip(places, middles, strict=True):
        label = f"seed {seed}: median {number(value)} bits"
        yield svg.marker(svg.shape(index), x, y, 4.5, f"mark filled s{svg.hue(index)}", label)


def _overall(frame: svg.Frame, ends: tuple[float, float], middles: tuple[float, float]) -> Iterator[Markup]:
    yield svg.path([(x, frame.y(value)) for x, value in zip(ends, middles, strict=True)], "overall")
    for x, value, shift, side in zip(ends, middles, (-9, 9), ("end", "start"), strict=True):
        yield svg.text(x + shift, frame.y(value) + 4, number(value), class_=f"side strong halo {side}")
