import pytest
from comparison_results import cell_of
from synthetic import LAPTOP, analyse, make_campaign, train_cell, write_results

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.topics.catalog import terms

STEPS, COLLECTIVES = [train_cell("resnet18", 1, n) for n in (1, 2, 4)], [cell_of("contained"), cell_of("bound")]


@pytest.fixture
def methods_of(tmp_path):
    """Return a function that returns the terms of a campaign with these cells, with their definitions."""
    return lambda cells: dict(terms(analyse(write_results(tmp_path / "r", make_campaign(cells), LAPTOP))))


@pytest.mark.parametrize(
    ("cells", "of_steps", "of_collectives"), [(STEPS, True, False), (COLLECTIVES, False, True)], ids=["steps", "calls"]
)
def test_a_term_is_defined_only_where_its_topic_has_rows(methods_of, cells, of_steps, of_collectives):
    found = methods_of(cells)
    of_topics = {"Best bucket": of_steps, "Exposed communication": of_steps, "Efficiency": of_steps}
    of_topics |= {"Bandwidth": of_collectives, "Comparisons": of_collectives}
    assert {term: term in found for term in of_topics} == of_topics


def test_the_terms_have_the_constants_of_the_code(methods_of):
    text = methods_of(COLLECTIVES)["Comparisons"]
    assert f"p ≤ {FALSE_DISCOVERIES:g}" in text
    assert f"From {MIN_LAUNCHES} launches per side" in text
