from comparison_results import cell_of
from synthetic import make_campaign, train_cell

from regatta.core.moderation import FALSE_DISCOVERIES, MIN_LAUNCHES
from regatta.topics.catalog import TOPICS
from regatta.topics.comparison.texts import KIND_OF

ONE = [train_cell("resnet18", 1, 1, "none", None)]


DERIVED = ("Communication model", "Scaling models", "Best bucket", "Exposed communication", "MFU")


def methods_of(campaign):
    return dict(term for topic in TOPICS for term in topic.methods(campaign))


def terms_of(cells, **fields):
    return {term for term in methods_of(make_campaign(cells, **fields)) if term in DERIVED}


def test_a_campaign_of_one_cell_has_no_term_on_what_takes_several():
    assert terms_of(ONE) == set()


def test_each_analysis_is_told_only_where_the_campaign_has_its_cells():
    assert terms_of([cell_of("contained", 4**i) for i in range(5)]) == {"Communication model"}
    assert terms_of([cell_of("contained", 4**i) for i in range(4)]) == set()
    assert terms_of([train_cell("resnet18", 1, 2)]) == {"Exposed communication"}
    buckets = [train_cell("resnet18", 1, 2, "ddp", bucket) for bucket in (1, 25)]
    assert terms_of(buckets) == {"Best bucket", "Exposed communication"}
    sizes = [train_cell("resnet18", 1, n) for n in (1, 2, 4)]
    assert terms_of(sizes) == {"Scaling models", "Exposed communication"}


def test_mfu_is_told_where_the_cluster_has_peaks_and_steps_were_trained():
    cluster = make_campaign(ONE)["cluster"] | {"peaks": [{"device": "X", "dtype": "fp32", "tflop_per_s": 1.0}]}
    assert terms_of(ONE, cluster=cluster) == {"MFU"}
    assert terms_of([cell_of("contained")], cluster=cluster) == set()


def test_the_terms_have_the_constants_of_the_code():
    text = KIND_OF["one_is_slower"].help
    assert f"p ≤ {FALSE_DISCOVERIES:g}" in text
    assert f"From {MIN_LAUNCHES} launches per side" in text


def test_words_of_findings_are_defined():
    terms = methods_of(make_campaign([train_cell("resnet18", 1, 2)]))
    assert "multiple comparisons with the best" in terms["Within noise"]
