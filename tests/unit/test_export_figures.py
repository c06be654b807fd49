"""Figures for papers and slides: fonts, width, marks and captions of what export_figures.py writes."""

import csv
import re
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from formats_files import run_script
from synthetic import CLUSTER, analyse, analyse_files, cluster_campaign, make_campaign, train_cell, write_results
from synthetic_own import MACHINE, program_cell
from test_frozen_tables import CAMPAIGNS

from export_figures import FORMS, export_figures
from regatta.topics.catalog import drawn_figures


def export(folder: Path, kind: str) -> tuple[list, Path]:
    data = analyse(folder)
    figures, out = drawn_figures(data), folder / "figures" / kind
    export_figures(figures, data, out, FORMS[kind])
    return figures, out


@pytest.fixture
def small(tmp_path) -> Path:
    cells = [train_cell("resnet50", 1, 1, "none"), *(train_cell("resnet50", 1, gpus) for gpus in (1, 2, 4))]
    return write_results(tmp_path / "small", make_campaign(cells, name="small", repeats=2), CLUSTER)


def test_each_kind_of_figure_has_its_files(tmp_path):
    """A kind of figure, such as efficiency-1 and efficiency-2, is exported from the first campaign that has it."""
    out, exported = tmp_path / "figures", {}
    for name, write in CAMPAIGNS.items():
        data = analyse(write(tmp_path / name))
        kinds = {figure.id.rstrip("-0123456789"): figure for figure in drawn_figures(data)}
        new = {kind: figure for kind, figure in kinds.items() if kind not in exported}
        export_figures([*new.values()], data, out, FORMS["paper"])
        exported |= new
    figures = exported.values()
    assert len(figures) > 12
    assert {path.name for path in out.iterdir()} == {
        f"{figure.id}.{kind}" for figure in figures for kind in ("pdf", "svg", "png", "csv", "txt")
    }
    for figure in figures:
        [head, *rows] = csv.reader((out / f"{figure.id}.csv").read_text(encoding="utf-8").splitlines())
        marks = figure.chart.marks
        assert head == [*marks]
        assert len(rows) == len(marks) > 0
        for row, mark in zip(rows, marks.to_numpy().tolist(), strict=True):
            for text, value in zip(row, mark, strict=True):
                if isinstance(value, str):
                    assert text == value
                else:
                    assert float(text or "nan") == pytest.approx(
                        float("nan") if value is None else value, 1e-5, nan_ok=True
                    )


@pytest.mark.parametrize(("kind", "width_pt", "ratio"), [("paper", 3.35 * 72, None), ("slides", 384, 16 / 9)])
def test_a_drawing_has_its_width_and_embedded_true_type_fonts(small, drawing, kind, width_pt, ratio):
    figures, out = export(small, kind)
    for figure in figures:
        content = (out / f"{figure.id}.pdf").read_bytes()
        box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", content)
        width, height = map(float, box.groups())
        assert width == pytest.approx(width_pt)
        assert ratio is None or width / height == pytest.approx(ratio)
        assert b"/FontFile2" in content
        assert b"/Type3" not in content
        svg = (out / f"{figure.id}.svg").read_text(encoding="utf-8")
        assert float(re.search(r'width="([\d.]+)pt"', svg)[1]) == pytest.approx(width_pt)
        assert "<text" not in svg  # outlines need no font
        assert not re.search("#a100[0-9a-f]{2}", svg)


def test_the_texts_of_a_drawing_are_inside_it_and_of_one_size(small, monkeypatch):
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    outside, sizes = [], set()

    def check(canvas, file, **_):
        file.write(b"")
        sizes.update(text.get_fontsize() for text in canvas.findobj(Text) if text.get_text())
        for axes in canvas.axes:
            box = axes.get_tightbbox().transformed(canvas.transFigure.inverted())
            outside.append(max(-box.x0, -box.y0, box.x1 - 1, box.y1 - 1))

    monkeypatch.setattr(Figure, "savefig", check)
    export(small, "paper")
    assert sizes == {8}
    assert outside
    assert max(outside) < 0.005


@pytest.mark.parametrize("kind", ["paper", "slides"])
def test_legends_are_inside_the_drawing_and_rows_have_the_height_of_text(tmp_path, monkeypatch, kind):
    from matplotlib.figure import Figure

    drawn = []

    def check(canvas, file, **_):
        file.write(b"")
        boxes = [one.get_window_extent().transformed(canvas.transFigure.inverted()) for one in canvas.legends]
        beyond = max((max(-box.x0, -box.y0, box.x1 - 1, box.y1 - 1) for box in boxes), default=0)
        drawn.append((Path(file.name).stem, len(boxes), beyond, canvas.get_figheight()))

    monkeypatch.setattr(Figure, "savefig", check)
    data = analyse(write_results(tmp_path / "stacks", cluster_campaign(), CLUSTER))
    figures = [figure for figure in drawn_figures(data) if figure.chart.form in ("stacked", "hosts")]
    assert {figure.id for figure in figures} == {"losses", "gantt"}
    export_figures(figures, data, tmp_path / "figures", FORMS[kind])
    for name, num_legends, beyond, height_in in drawn:  # each has eight rows
        assert beyond < 0.005, name
        assert num_legends or name != "gantt"
        assert height_in >= 8 * FORMS[kind].text_pt / 72


def text_of_pdf(content: bytes) -> str:
    """Return the strings that the page of a PDF shows, without the kerning between them."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        with suppress(zlib.error):
            shown = re.findall(rb"BT\n(.*?)\nET", zlib.decompressobj().decompress(stream), re.DOTALL)
            found += ["".join(re.findall(r"\(((?:\\.|[^\\)])*)\)", text.decode("latin-1"))) for text in shown]
    return "\n".join(found).replace("\0", "")


@pytest.mark.parametrize("kind", ["paper", "slides"])
def test_files_carry_campaign_machine_and_date(small, drawing, kind):
    from PIL import Image

    figures, out = export(small, kind)
    for figure in figures:
        content = (out / f"{figure.id}.pdf").read_bytes()
        subject = re.search(rb"/Subject\s*\((.*?)\)", content)[1].decode()
        with Image.open(out / f"{figure.id}.png") as image:
            texts, width = image.text, image.width
        assert texts["Title"] == figure.title
        assert texts["Description"] == subject
        assert width == pytest.approx(FORMS[kind].width_in * 300, abs=1)
        svg = (out / f"{figure.id}.svg").read_text(encoding="utf-8")
        shown = " ".join(text_of_pdf(content).split())
        for fact in ("small", "cluster local", "2026-11-21"):
            assert fact in subject
            assert fact in shown
            assert fact in svg


def test_the_caption_of_one_record_says_so(tmp_path):
    """`rank-times` shows one launch, and the range of its iterations."""
    out = tmp_path / "figures"
    data = analyse(CAMPAIGNS["slow-rank"](tmp_path / "r"))
    figures = [figure for figure in drawn_figures(data) if figure.id == "rank-times"]
    export_figures(figures, data, out, FORMS["paper"])
    lines = (out / "rank-times.txt").read_text(encoding="utf-8").splitlines()
    assert figures[0].chart.record in lines[1]
    assert "p5 to p95" in lines[2]


def test_a_caption_has_launches_interval_machine_and_versions(small):
    figures, out = export(small, "paper")
    [efficiency] = [figure for figure in figures if figure.id == "efficiency-1"]
    lines = (out / f"{efficiency.id}.txt").read_text(encoding="utf-8").splitlines()
    assert efficiency.title in lines[0]
    assert [int(number) for number in re.findall(r"\d+", lines[1])] == [2, 3]  # launches of each cell, cells
    assert "range" in lines[2]  # two launches have no interval
    assert "local" in lines[3]
    assert "2.12.1" in lines[4]


def test_a_store_without_tables_is_refused(small, tmp_path):
    done = run_script("export_figures.py", small, "--for", "paper", cwd=tmp_path)
    assert done.returncode == 2
    assert str(small) in done.stderr
    assert "Traceback" not in done.stderr
    analyse_files(small)
    done = run_script("export_figures.py", small, "--for", "slides", cwd=tmp_path)
    assert done.returncode == 0
    assert len([*(small / "figures" / "slides").glob("*.pdf")]) == int(done.stdout.split()[-2])


def test_a_character_that_the_font_lacks_is_no_warning(tmp_path, recwarn):
    read = {"rate \N{ROCKET}": {"match": r"rate: (\S+)", "unit": "GB/s", "better": "larger"}}
    cells = [program_cell(n, 1, read=read) for n in (5, 6)]
    export(write_results(tmp_path / "r", make_campaign(cells, repeats=2), MACHINE), "paper")
    assert [str(warning.message) for warning in recwarn if "Glyph" in str(warning.message)] == []
