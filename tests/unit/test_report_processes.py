"""Sections of a large campaign are made in several processes: the page stays the same."""

import pytest
from synthetic import analyse, write_laptop
from synthetic_stacks import write_stacks

from regatta.report import page
from regatta.topics import catalog


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(page, "MOST_CELLS_IN_FULL", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


@pytest.mark.parametrize("write", [write_laptop, write_stacks])
def test_sections_made_in_processes_give_the_same_page(tmp_path, monkeypatch, large, write):
    data = analyse(write(tmp_path / "r"))
    pages = set()
    for num_processes in (1, 2):
        monkeypatch.setattr(catalog, "MOST_PROCESSES", num_processes)
        pages.add(catalog.render(data))
    assert len(pages) == 1


def test_an_error_of_a_process_reaches_the_caller(tmp_path, monkeypatch, large):
    data = analyse(write_laptop(tmp_path / "r"))
    monkeypatch.setattr(catalog, "with_images", lambda section: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        catalog.render(data)
