"""Nodes that Regatta avoids and nodes that the cluster file excludes or requires, in one option of sbatch."""

import pytest

from regatta.launchers.slurm_resources import node_names, with_avoided


def test_a_name_with_a_slash_is_a_file_of_nodes(tmp_path):
    (tmp_path / "bad").write_text("# since Monday\nn[1-2], n5\n\nn7*4 # of four tasks\nn8 n9\n")
    assert node_names(str(tmp_path / "bad")) == ["n1", "n2", "n5", "n7", "n8", "n9"]
    with pytest.raises(OSError, match="node names"):
        node_names(str(tmp_path))


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ([], ["--exclude=n8,n9"]),
        (["--exclude=n1"], ["--exclude=n1,n8,n9"]),
        (["-x n1"], ["--exclude=n1,n8,n9"]),
        (["-xn1"], ["--exclude=n1,n8,n9"]),
        (["--exclude=n[1-2]", "--switches=1"], ["--switches=1", "--exclude=n[1-2],n8,n9"]),
        (["--exclude=n1", "-xn2"], ["--exclude=n1,n2,n8,n9"]),  # sbatch would forget n1
        (["--exclude=n[8-9]"], ["--exclude=n[8-9]"]),
        (["--exclude=n8"], ["--exclude=n8,n9"]),
        (["--exclusive=user"], ["--exclusive=user", "--exclude=n8,n9"]),
    ],
)
def test_both_exclusions_are_one_option(given, merged):
    assert with_avoided(given, ["n9", "n8"], 10, 2) == merged


@pytest.mark.parametrize(("num_nodes", "is_avoided"), [(5, True), (4, False)])
def test_the_nodes_of_the_cluster_file_count_among_those_that_are_gone(num_nodes, is_avoided):
    """n1, n2 and n9 of five nodes are gone: two are left."""
    excluded = with_avoided(["--exclude=n[1-2]"], ["n9"], num_nodes, 2)
    assert excluded == (["--exclude=n[1-2],n9"] if is_avoided else ["--exclude=n[1-2]"])


@pytest.mark.parametrize("option", ["--nodelist=n[8-12]", "-wn8", "-w n8,n1"])
def test_a_node_that_is_required_is_not_excluded(option):
    assert with_avoided([option], ["n8"], 10, 2) == [option]
    assert with_avoided([option, "-xn2"], ["n8", "n20"], 10, 2) == [option, "--exclude=n2,n20"]


def test_the_cluster_files_exclusion_stays_where_only_slurm_can_read_it(tmp_path):
    for option in ("--exclude=n[1-", f"--exclude={tmp_path}/none", "-x /dev/zero", "--nodelist=n[", "--exclude=$(x)["):
        assert with_avoided([option], ["n8"], 10, 2) == [option]


def test_a_file_of_excluded_nodes_is_read(tmp_path):
    (tmp_path / "bad nodes").write_text("n1\nn[3-4]\n")
    assert with_avoided([f"-x{tmp_path}/bad nodes"], ["n8"], 10, 2) == ["--exclude=n1,n3,n4,n8"]
    (tmp_path / "bad nodes").write_text("")
    assert with_avoided([f"-x{tmp_path}/bad nodes"], ["n8"], 10, 2) == [f"-x{tmp_path}/bad nodes"]
