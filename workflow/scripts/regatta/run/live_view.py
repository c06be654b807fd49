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
    batches = [
        (b.id, b.shape, f"{b.num_recorded} of {b.num_measurements}", b.job or UNKNOWN, b.cell or "starting")
        for b in state.running
    ]
    failures = [(f"{group.num:,}", _status(group.status), group.cause) for group in state.failures]
    records = [
        (r.time_utc[11:19], _status(r.status), duration(r.elapsed_s), r.slot[1], name)
        for r in state.last_records
        for name in [state.names.get(r.cell, r.cell)]
    ]
    used = OTHER_LINES + min(len(batches), MAX_BATCHES) + min(len(failures), MAX_CAUSES)
    tables = [
        _table("Running batches", "Batch Shape Recorded Job Cell", batches, MAX_BATCHES, ("batch", "batches")),
        _table("Failures by cause", "Count Status Cause", failures, MAX_CAUSES, ("cause", "causes")),
        _table("Latest records (UTC)", "Time Status Duration Repeat Cell", records, max(MIN_RECORDS, height - used)),
    ]
    return Group(_head(state), _facts(state), *filter(None, tables))


def _head(state: RunState) -> Group:
    text = Text(_clean(state.campaign.name), style="bold")
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
        UNKNOWN if hours is None else rank_time(hours, state.campaign.device)
        for hours in (state.rank_hours_spent, state.rank_hours_left)
    )
    table.add_row("Cost", f"{spent} spent, {left} left")
    return table


def _table(title: str, columns: str, rows: list[tuple], most: int, nouns: tuple[str, ...] = ()) -> Table | None:
    """Return a table of at most so many rows, and the number of the others; None without rows."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    names = columns.split()
    for name in names:
        table.add_column(name, header_style="dim", no_wrap=name != names[-1])  # only the last may be shortened
    for row in rows[:most]:
        table.add_row(*(value if isinstance(value, Text) else _text(value) for value in row))
    if nouns and len(rows) > most:
        table.caption = f"and {plural(len(rows) - most, *(f'more {noun}' for noun in nouns))}"
        table.caption_justify = "left"
    return table if rows else None


def _status(status: str) -> Text:
    return Text(_clean(status_text(status)), style=STYLES.get(status, "red"))


def _text(value: object) -> Text:
    return Text(_clean(value), no_wrap=True, overflow="ellipsis")


def _clean(value: object) -> str:
    return one_line(value, MAX_TEXT)
