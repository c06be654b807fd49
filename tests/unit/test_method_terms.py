from comparison_results import cell_of
from synthetic import make_campaign, train_cell

from regatta.core.verdicts import FALSE_DISCOVERIES
from regatta.report.methods import analysis_terms, methods

ONE = [train_cell("resnet18", 1, 1, "none", None)]


def terms_of(cells, **fields):
    return [term for term, _ in analysis_terms(make_campaign(cells, **fields))]


def test_a_campaign_of_one_cell_has_no_term_on_what_takes_several():
    assert terms_of(ONE) == []


def test_each_analysis_is_told_only_where_the_campaign_has_its_cells():
    assert terms_of([cell_of("contained"), cell_of("bound")]) == ["Comparisons"]
    assert terms_of([cell_of("contained", 4**i) for i in range(5)]) == ["Communication model"]
    assert terms_of([cell_of("contained", 4**i) for i in range(4)]) == []
    assert terms_of([train_cell("resnet18", 1, 2)]) == ["Exposed communication"]
    buckets = [train_cell("resnet18", 1, 2, "ddp", bucket) for bucket in (1, 25)]
    assert terms_of(buckets) == ["Best bucket", "Exposed communication"]
    sizes = [train_cell("resnet18", 1, n) for n in (1, 2, 4)]
    assert terms_of(sizes) == ["Scaling models", "Exposed communication"]


def test_mfu_is_told_where_the_cluster_has_peaks_and_steps_were_trained():
    cluster = make_campaign(ONE)["cluster"] | {"peaks": [{"device": "X", "dtype": "fp32", "tflop_per_s": 1.0}]}
    assert terms_of(ONE, cluster=cluster) == ["MFU"]
    assert terms_of([cell_of("contained")], cluster=cluster) == []


def test_the_terms_stand_in_the_methods_with_the_constants_of_the_code():
    campaign = make_campaign([cell_of("contained"), cell_of("bound")])
    told = dict(methods(campaign))
    assert f"at most {FALSE_DISCOVERIES:g}" in told["Comparisons"]
    assert "from 3 launches on both sides or 5 pairs" in told["Comparisons"]
    assert "synchronised steps, blocking calls" in told["Comparisons"]
