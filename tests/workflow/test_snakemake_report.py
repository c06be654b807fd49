"""Logs of the rules, and Snakemake's own report with Regatta's pages in it."""

import base64
import json

from campaigns import fake_campaign, snakemake, write_campaign


def test_a_run_leaves_a_log_of_each_rule_and_snakemakes_report_holds_plan_and_report(tmp_path):
    path = write_campaign(tmp_path, fake_campaign(repeats=1))
    done = snakemake(tmp_path, path, "--report", "snakemake.html", "--report-after-run")
    assert done.returncode == 0, done.stderr
    results = tmp_path / "results" / "small"
    logs = {str(log.relative_to(results / "logs")) for log in (results / "logs").rglob("*.log")}
    batches = [manifest.parent.name for manifest in results.glob("batches/*/manifest.json")]
    of_batches = {f"measure/{batch}.log" for batch in batches}
    assert logs == {"freeze.log", "analyse.log", "report.log"} | of_batches
    for batch in batches:  # what the terminal showed is in the log too
        text = (results / "logs" / "measure" / f"{batch}.log").read_text()
        assert text.startswith(f"{batch}: ")
        assert text in done.stdout
    page = (tmp_path / "snakemake.html").read_text()
    assert "distributed PyTorch" in page
    for name, caption in (
        ("report.html", "Regatta's report of the campaign"),
        ("plan.html", "The campaign's latest plan"),
    ):
        begin = f'"results/small/{name}": '
        shown, _ = json.JSONDecoder().raw_decode(page, page.index(begin) + len(begin))
        assert shown["caption"].startswith(f"<p>{caption}")
        assert base64.b64decode(shown["data_uri"].partition("base64,")[2]) == (results / name).read_bytes()
    for category in ("Plan", "Report"):
        assert f'"{category}": ' in page
