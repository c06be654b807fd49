"""The sampling rules under Methods are those of the campaign's cells."""

from synthetic import make_campaign, train_cell
from synthetic_training import norm_cell
from typed import typed

from regatta.report.page import sampling


def sampling_of(cells):
    return sampling(typed(make_campaign(cells)))


def test_windows_are_named_only_for_benchmarks_that_have_them():
    step, norm = train_cell("resnet18", 1, 1, "none"), norm_cell("own", 32, 2**20, 1, 2)
    step["spec"]["sampling"] = norm["spec"]["sampling"] | {"windows_ratio": 0.25}
    both = sampling_of([step, norm])
    assert both.count("Stops when") == 1
    assert "25 %" in both
    assert "windows" not in sampling_of([norm])


def test_versions_without_the_key_had_windows_of_half_a_second():
    assert sampling_of([train_cell("resnet18", 1, 1, "none")]).endswith("0.5 s.")
