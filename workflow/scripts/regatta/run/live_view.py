"""The live view of a running campaign, drawn with rich. Every text of a campaign is one clean line, never markup."""

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regatta.core.text import UNKNOWN, duration, one_line, plural, rank_time, span_text, status_text, three
from regatta.run.run_state import RunState, done_text, notes

MAX_BATCHES, MAX_CAUSES, MIN_RECORDS = 8, 6, 3
OTHER_LINES = 17  # of a view with one batch, one cause and no record
MAX_TEXT = 200  # characters of a name or a cause
STYLES = {"ok": "green", "skipped": "dim"}  # any other status: red; the status itself is always written


def follow(next_state: Callable[[], RunState], console: Console, every_s: float) -> RunState:
    """Redraw the view until the campaign is complete, and return its last state."""
    state = next_state()
    try:
        with Live(view(state, console.height), console=console, auto_refresh=False) as live:
            while not state.is_complete:
                time.sleep(every_s)
                state = next_state()
                live.update(view(state, console.height), refresh=True)
    finally:
        console.show_cursor()  # also after Ctrl-C while Live starts
    return state


def view(state: RunState, height: int) -> Group:
    """Return the whole view. height: lines of the terminal; fewer records are shown if there is little room."""
    parts = [_head(state), _facts(state)]
    num_lines = OTHER_LINES
    if state.running:
        parts.append(_batches(state))
        num_lines += min(len(state.running), MAX_BATCHES)
    if state.failures:
        parts.append(_failures(state))
        num_lines += min(len(state.failures), MAX_CAUSES)
    if state.last_records:
        parts.append(_records(state, max(MIN_RECORDS, height - num_lines)))
    return Group(*parts)


def _head(state: RunState) -> Group:
    text = Text(_clean(state.campaign), style="bold")
    text.append(f"  {done_text(state)}", style="not bold")
    for note in notes(state):
        text.append(f"  {note}", style="not bold yellow")
    bar = Table.grid(expand=True)
    bar.add_row(ProgressBar(total=max(1, state.num_planned), completed=state.num_recorded))
    return Group(text, bar)


def _facts(state: RunState) -> Table:
    table = Table.grid(padding=(0, 2))
    batches = f"{len(state.running)} running, {state.num_queued} queued, {state.num_finished} finished"
    table.add_row("Batches", batches + (f", {state.num_idle} not started" if state.num_idle else ""))
    per_hour = state.measurements_per_hour
    table.add_row("Rate", UNKNOWN if per_hour is None else f"{three(per_hour)} measurements per hour")
    left_s = state.seconds_left
    table.add_row("Time left", UNKNOWN if left_s is None else span_text(*left_s))
    spent, left = (
        UNKNOWN if hours is None else rank_time(hours, state.device)
        for hours in (state.rank_hours_spent, state.rank_hours_left)
    )
    table.add_row("Cost", f"{spent} spent, {left} left")
    return table


def _batches(state: RunState) -> Table:
    table = _table("Running batches", "Batch", "Shape", "Recorded", "Job", "Cell")
    for batch in state.running[:MAX_BATCHES]:
        done = f"{batch.num_recorded} of {batch.num_measurements}"
        table.add_row(*map(_text, (batch.id, batch.shape, done, batch.job or UNKNOWN, batch.cell or "starting")))
    return _with_rest(table, len(state.running) - MAX_BATCHES, "batch", "batches")


def _failures(state: RunState) -> Table:
    table = _table("Failures by cause", "Count", "Status", "Cause")
    for group in state.failures[:MAX_CAUSES]:
        table.add_row(Text(f"{group.num:,}"), _status(group.status), _text(group.cause))
    return _with_rest(table, len(state.failures) - MAX_CAUSES, "cause")


def _records(state: RunState, most: int) -> Table:
    table = _table("Latest records (UTC)", "Time", "Status", "Duration", "Repeat", "Cell")
    for record in state.last_records[:most]:
        shown = time.strftime("%H:%M:%S", time.gmtime(record.time_s))
        row = map(_text, (duration(record.elapsed_s), record.repeat, record.cell))
        table.add_row(Text(shown), _status(record.status), *row)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, header_style="dim", no_wrap=column != columns[-1])  # only the last may be shortened
    return table


def _with_rest(table: Table, num: int, noun: str, nouns: str | None = None) -> Table:
    if num > 0:
        table.caption, table.caption_justify = f"and {plural(num, f'more {noun}', nouns and f'more {nouns}')}", "left"
    return table


def _status(status: str) -> Text:
    return Text(_clean(status_text(status)), style=STYLES.get(status, "red"))


def _text(value: object) -> Text:
    return Text(_clean(value), no_wrap=True, overflow="ellipsis")


def _clean(value: object) -> str:
    return one_line(value, MAX_TEXT)
