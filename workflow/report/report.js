"use strict";
// Filters, cell drawer and table of all cells of the report. The page is complete without this script.
// Names, causes and commands may contain anything: they become text nodes or attributes, never markup.

/** Return three significant figures without an exponent: 0.000123, 1.20, 12,300. n/a if unknown. */
function three(value, figures = 3) {
  if (value == null || Number.isNaN(value)) return "n/a";
  if (value === 0) return "0";
  const rounded = roundHalfEven(value, figures);
  const digits = figures - 1 - Number(rounded.toExponential(figures - 1).split("e")[1]);
  const [whole, decimals] = Math.abs(rounded).toFixed(Math.max(digits, 0)).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return (value < 0 ? "−" : "") + grouped + (decimals ? "." + decimals : "");
}

/** Round to significant figures; ties go to the even digit, as in Python. */
function roundHalfEven(value, figures) {
  const [digits, exponent] = value.toExponential(60).split("e"); // exact: ties have few digits
  const all = digits.replace(/[-.]/g, "");
  if (!/^50*$/.test(all.slice(figures)) || Number(all[figures - 1]) % 2) return Number(value.toPrecision(figures));
  return Number((value < 0 ? "-" : "") + all[0] + "." + all.slice(1, figures) + "e" + exponent);
}

/** Return a ratio with three decimals near 1. */
function ratioText(ratio) {
  return ratio === null || !(ratio >= 0.1 && ratio < 10) ? three(ratio) : ratio.toFixed(3);
}

/** Return a range as (low to high), an interval as [low, high]; empty if unknown. */
function intervalText(low, high, kind, show = three) {
  if (low == null || high == null) return "";
  return kind === "range" ? `(${show(low)} to ${show(high)})` : `[${show(low)}, ${show(high)}]`;
}

// The view: what is filtered, searched, sorted and open. It lives in the fragment of the URL.

/** Return section and values of a fragment such as #scaling&model=resnet50. */
function parseFragment(fragment) {
  const found = { section: "", values: {} };
  for (const part of fragment.replace(/^#/, "").split("&").filter(Boolean)) {
    const [key, ...rest] = part.split("=").map(decoded);
    if (rest.length) found.values[key] = rest.join("=");
    else if (!found.section) found.section = key;
  }
  return found;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function formatFragment(section, values) {
  const known = Object.entries(values).filter(([, value]) => value !== "");
  const parts = known.map((pair) => pair.map(encodeURIComponent).join("="));
  const all = section ? [encodeURIComponent(section), ...parts] : parts;
  return all.length ? "#" + all.join("&") : "";
}

/** Return the view of a fragment's values. `ignored` lists what this campaign does not have. */
function readView(block, values) {
  const view = { filters: {}, query: values.search || "", sort: null, cell: null, ignored: [] };
  for (const [key, value] of Object.entries(values)) {
    const index = Object.hasOwn(block.facets, key) ? block.facets[key].names.indexOf(value) : -1;
    const sort = value.replace(/^-/, "");
    const cell = block.cells.id.indexOf(value);
    if (index >= 0) view.filters[key] = index;
    else if (key === "sort" && block.columns.some((column) => column.key === sort)) {
      view.sort = { key: sort, isDescending: value.startsWith("-") };
    } else if (key === "cell" && cell >= 0) view.cell = cell;
    else if (key !== "search") view.ignored.push(`${key}=${value}`);
  }
  return view;
}

/** Return the values of a view for a fragment. */
function viewValues(block, view) {
  const values = {};
  for (const [key, index] of Object.entries(view.filters)) values[key] = block.facets[key].names[index];
  if (view.query) values.search = view.query;
  if (view.sort) values.sort = (view.sort.isDescending ? "-" : "") + view.sort.key;
  if (view.cell !== null) values.cell = block.cells.id[view.cell];
  return values;
}

/** Return for each cell whether it passes the filters and contains all words of the search. */
function matching(block, view) {
  const { cells, facets } = block;
  const wanted = Object.entries(view.filters);
  const passes = (cell) => ([key, index]) =>
    key === "status" && facets.status.names[index] === "warning" ? cells.invalid[cell] !== null : cells[key][cell] === index;
  const words = view.query.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = words.length ? (block.searched ??= searchTexts(block)) : [];
  return cells.id.map((_, cell) => wanted.every(passes(cell)) && words.every((word) => texts[cell].includes(word)));
}

/** Return the searchable text of cells: name, id, causes and hosts. */
function searchTexts({ cells, launches, files, texts }) {
  return launchRanges(cells.num_planned).map(([first, end], cell) => {
    const found = new Set([cells.name[cell], cells.id[cell], texts.causes[cells.reason[cell]]]);
    for (let launch = first; launch < end; launch++) {
      found.add(texts.causes[launches.cause[launch]]).add(files.hosts[launches.file[launch]]);
    }
    return [...found].join(" ").toLowerCase();
  });
}

/** Return cells sorted by a column; unknown values come last in both directions. The sort is stable. */
function sorted(block, cells, sort) {
  if (!sort) return cells;
  const values = block.cells[sort.key];
  const isText = block.columns.find((column) => column.key === sort.key).kind === "text";
  const compare = isText ? new Intl.Collator("en", { numeric: true }).compare : (a, b) => a - b;
  return [...cells].sort((a, b) => {
    if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
    return (sort.isDescending ? -1 : 1) * compare(values[a], values[b]);
  });
}

/** Return the value of a column as the table shows it. */
function columnText(block, column, cell) {
  const value = block.cells[column.key][cell];
  if (column.key === "num_ok") return block.cells.num_planned[cell] ? `${value}/${block.cells.num_planned[cell]}` : "–";
  if (value === null) return "n/a";
  if (column.kind === "facet") return block.facets[column.key].values[value];
  return column.kind === "number" ? three(value, column.digits) : value;
}

/** Return cells as CSV with the id first. Numbers have all digits; unknown is empty. */
function csv(block, cells, columns) {
  const listed = columns.filter((column) => column.key !== "id");
  const quoted = (value) => {
    if (/^[=+@\t\r'-]/.test(value) && isNaN(value)) value = `'${value}`;
    return /[",\r\n]/.test(value) ? `"${value.replace(/"/g, '""')}"` : value;
  };
  const row = (cell) =>
    listed.map((column) => {
      const value = block.cells[column.key][cell];
      if (value === null) return "";
      return String(column.kind === "facet" ? block.facets[column.key].names[value] : value);
    });
  const lines = [["cell", ...listed.map((column) => column.label)]];
  for (const cell of cells) lines.push([block.cells.id[cell], ...row(cell)]);
  return lines.map((line) => line.map(quoted).join(",") + "\n").join("");
}

/** Return the first shown number of a cell with its label: "Step time (ms): 12.3". */
function mainNumber(block, cell) {
  const isMain = (column) => column.kind === "number" && column.is_shown && column.group === "results";
  const column = block.columns.find((column) => isMain(column) && block.cells[column.key][cell] !== null);
  return column ? `${column.label}: ${three(block.cells[column.key][cell])}` : "no result";
}

/** Return [first, end) of the launches of each cell. */
function launchRanges(numPlanned) {
  let end = 0;
  return numPlanned.map((num) => [end, (end += num)]);
}

/** Return the factor and the unit in which times given in milliseconds read well. */
function timeUnit(milliseconds) {
  if (milliseconds < 1) return { factor: 1e3, unit: "µs" };
  return milliseconds < 1000 ? { factor: 1, unit: "ms" } : { factor: 1e-3, unit: "s" };
}

/** Return about four round numbers from low to high as texts. */
function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const decimals = Math.max(0, -Math.floor(Math.log10(step * (1 + 1e-9))));
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) found.push((n * step).toFixed(decimals));
  return found;
}

const UPPER = ["p99", "p95", "p90", "p75"]; // the largest known one ends a strip's bar

/**
 * Return one strip per launch on an axis from 0 to `width`: line from minimum to maximum, bar from the median to the
 * largest known quantile. A maximum far beyond the bars is clipped and marked. launches: quantiles by name in ms.
 */
function strips(launches, width) {
  const measured = launches.filter((launch) => launch.p50 != null);
  if (!measured.length) return null;
  const upper = (launch) => UPPER.map((name) => launch[name]).find((value) => value != null);
  let low = Math.min(...measured.map((launch) => launch.min ?? launch.p50));
  const bars = Math.max(...measured.map((launch) => upper(launch) ?? launch.p50));
  let high = Math.max(bars, ...measured.map((launch) => launch.max ?? launch.p50));
  if (bars > low && high - low > 4 * (bars - low)) high = low + 2 * (bars - low);
  if (high === low) [low, high] = [low * 0.99, high * 1.01];
  const { factor, unit } = timeUnit(measured[0].p50);
  const x = (value) => Math.round((10 * width * (Math.min(value, high) - low)) / (high - low)) / 10;
  return {
    unit,
    ticks: ticks(low * factor, high * factor).map((text) => ({ x: x(Number(text) / factor), text })),
    rows: launches.map((launch) => {
      if (launch.p50 == null) return null;
      const end = upper(launch);
      return {
        line: [x(launch.min ?? launch.p50), x(launch.max ?? launch.p50)],
        bar: end === undefined ? null : [x(launch.p50), x(end)],
        median: x(launch.p50),
        isClipped: (launch.max ?? launch.p50) > high,
      };
    }),
  };
}

/** Return an element. children: elements or texts; what is null is left out. */
function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "line", "rect", "text"].includes(tag);
  const element = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

const byId = (id) => document.getElementById(id);
const isNarrow = () => matchMedia("(max-width: 40rem)").matches;

async function readBlock() {
  const bytes = Uint8Array.from(atob(byId("data-block").textContent.trim()), (c) => c.charCodeAt());
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Add filters, drawer and table to the page. */
function enhance(block) {
  const { cells } = block;
  const numCells = cells.id.length;
  const table = byId("cells-table");
  const ranges = launchRanges(cells.num_planned);
  const marks = [];
  const groups = new Map();
  const shown = new Set(block.columns.filter((column) => column.is_shown).map((column) => column.key));
  let fragment = parseFragment(location.hash);
  let view = readView(block, fragment.values);
  let isOn = [];
  let numRows = 0;
  let opener = null;

  // Filters.
  const selects = {};
  const fillFilters = () => {
    const first = ["model", "stack", "shape", "bucket", "status"];
    for (const { key, help } of block.columns.filter(({ key }) => block.facets[key]?.values.length > 1)) {
      const facet = block.facets[key];
      const select = make("select", { name: key }, make("option", { value: "" }, "All"));
      facet.values.forEach((text, index) => select.append(make("option", { value: index }, text)));
      select.addEventListener("change", () => {
        if (select.value === "") delete view.filters[key];
        else view.filters[key] = Number(select.value);
        update();
      });
      selects[key] = select;
      const label = make("label", { title: help ?? null }, facet.label, select);
      if (first.includes(key)) byId("filter-more").before(label);
      else byId("filter-rest").append(label);
    }
    byId("filter-more").hidden = !byId("filter-rest").children.length;
    byId("filter-more").open = Object.keys(view.filters).some((key) => !first.includes(key));
    byId("filter-search").addEventListener("input", (event) => {
      view.query = event.target.value;
      update();
    });
    byId("filter-reset").addEventListener("click", () => {
      view = { ...view, filters: {}, query: "", ignored: [] };
      update();
      byId("filter-search").focus();
    });
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("filters").hidden = false;
    byId("filter-box").open = !isNarrow();
  };

  const addMarks = (root) => {
    const added = findMarks(block, root);
    marks.push(...added);
    addGroups(groups, added);
  };

  const showMarks = () => {
    for (const mark of marks) {
      const isOff = !mark.cells.some((cell) => isOn[cell]);
      if (isOff !== mark.isOff) mark.element.classList.toggle("is-off", (mark.isOff = isOff));
    }
    for (const line of document.querySelectorAll("svg [data-line]")) {
      line.classList.toggle("is-off", !cellsOf(line, "line").every((cell) => isOn[cell]));
    }
    for (const [element, { marks, note }] of groups) {
      const isOff = marks.every((mark) => mark.isOff);
      element.classList.toggle("is-off", isOff);
      if (note) note.hidden = !isOff;
    }
    keepOneStop();
  };

  /** Show what the view says: filters, marks, table and URL. */
  const update = () => {
    isOn = matching(block, view);
    showMarks();
    const num = isOn.filter(Boolean).length;
    const counted = `${whole(num)} of ${whole(numCells)} ${numCells === 1 ? "cell" : "cells"}`;
    byId("filter-count").textContent = num ? counted : `${counted}: no cell matches`;
    byId("filter-ignored").textContent = view.ignored.length ? `Ignored in the address: ${view.ignored.join(", ")}` : "";
    for (const [key, select] of Object.entries(selects)) select.value = view.filters[key] ?? "";
    byId("filter-search").value = view.query;
    const isFiltered = Object.keys(view.filters).length > 0 || view.query !== "";
    byId("filter-scope").hidden = !isFiltered;
    byId("filter-reset").disabled = !isFiltered && !view.ignored.length;
    numRows = numCells > 30 && !isNarrow() ? 25 : 8;
    fillTable();
    writeFragment();
  };

  const writeFragment = () => {
    const hash = formatFragment(fragment.section, viewValues(block, view));
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
  };

  // Table of all cells.
  const chosen = () => sorted(block, block.order.filter((cell) => isOn[cell]), view.sort);
  const columns = () => block.columns.filter((column) => shown.has(column.key));

  const headCell = (column) => {
    const isSorted = view.sort && view.sort.key === column.key;
    const direction = isSorted ? (view.sort.isDescending ? "descending" : "ascending") : null;
    const sort = () => {
      const isFirst = !!column.is_larger_worse; // the worst cells first
      const isDescending = isSorted ? !view.sort.isDescending : isFirst;
      view.sort = isSorted && isDescending === isFirst ? null : { key: column.key, isDescending };
      fillTable();
      writeFragment();
      table.querySelector(`[data-column="${CSS.escape(column.key)}"]`).focus();
    };
    const mark = isSorted && make("span", { "aria-hidden": "true" }, view.sort.isDescending ? " ▼" : " ▲");
    const button = make("button", { type: "button", "data-column": column.key, onclick: sort }, column.label, mark || null);
    return make("th", { scope: "col", class: column.kind, "aria-sort": direction }, button);
  };

  const fillTable = (least = 0) => {
    const num = Math.max(numRows, least);
    const rows = chosen();
    const listed = columns();
    table.tHead.replaceChildren(make("tr", {}, listed.map(headCell)));
    const cellOf = (column, cell) => {
      const text = columnText(block, column, cell);
      if (column.key !== "name") return make("td", { class: column.kind }, text);
      const title = block.texts.words[cells.invalid[cell]];
      const badge = title && [" ", make("a", { class: "badge", href: "#warnings", title }, "⚠")];
      return make("th", { scope: "row", class: "text" }, make("button", { type: "button", class: "open-cell" }, text), badge);
    };
    const rowOf = (cell) => listed.map((column) => cellOf(column, cell));
    const body = rows.slice(0, num).map((cell) => make("tr", { "data-cell": cell }, rowOf(cell)));
    table.tBodies[0].replaceChildren(...body);
    const count = `${whole(Math.min(num, rows.length))} of ${whole(rows.length)} cells shown`;
    byId("cells-count").textContent = rows.length ? count : NO_MATCH;
    byId("cells-more").hidden = rows.length <= num;
  };

  const setUpTable = () => {
    for (const { key, label } of block.columns.filter(({ key }) => key !== "name")) {
      const box = make("input", { type: "checkbox", checked: shown.has(key) });
      box.addEventListener("change", () => {
        shown[box.checked ? "add" : "delete"](key);
        fillTable();
      });
      byId("cells-columns-list").append(make("label", {}, box, " ", label));
    }
    byId("cells-more").addEventListener("click", () => {
      const next = numRows;
      numRows += 100;
      fillTable();
      table.tBodies[0].rows[next].querySelector("button").focus();
    });
    byId("cells-csv").addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([csv(block, chosen(), columns())], { type: "text/csv" }));
      make("a", { href: url, download: "cells.csv" }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    });
    addEventListener("beforeprint", () => fillTable(50));
    addEventListener("afterprint", () => fillTable());
    byId("cells-note").hidden = true;
    byId("cells-tools").hidden = false;
  };

  // Drawer.
  const drawer = byId("drawer");
  const openDrawer = (indices, from) => {
    if (from && !drawer.contains(from)) opener = from;
    view.cell = indices.length === 1 ? indices[0] : null;
    byId("drawer-title").textContent = view.cell === null ? `${indices.length} cells` : cells.name[view.cell];
    const content = view.cell === null ? cellList(indices) : cellDetails(block, view.cell, ranges[view.cell], openDrawer);
    const body = byId("drawer-body");
    body.replaceChildren(...content);
    const heads = [...body.querySelectorAll("h3")];
    const jump = (head) => make("button", { type: "button", onclick: () => head.scrollIntoView() }, head.textContent);
    body.prepend(make("p", { class: "jumps" }, heads.map(jump)));
    if (!drawer.open) drawer.show();
    drawer.scrollTop = 0;
    byId("drawer-title").focus();
    if (from?.closest("#comparisons")) heads.find((head) => head.textContent === "Comparisons")?.scrollIntoView();
    writeFragment();
  };
  const closeDrawer = () => {
    drawer.close();
    view.cell = null;
    writeFragment();
    (opener?.isConnected ? opener : byId("filter-search")).focus({ preventScroll: true });
    opener = null;
  };
  const cellList = (indices) => {
    const itemOf = (cell) => {
      const text = ` ${block.facets.status.values[cells.status[cell]]}; ${mainNumber(block, cell)}`;
      return make("li", {}, cellButton(block, cell, openDrawer), text);
    };
    return [make("ul", { class: "plain" }, indices.map(itemOf))];
  };
  const openMark = (element, from) => {
    const all = cellsOf(element, "cell");
    const on = all.filter((cell) => isOn[cell]);
    openDrawer(on.length ? on : all, from);
  };
  const setUpDrawer = () => {
    byId("drawer-close").addEventListener("click", closeDrawer);
    document.addEventListener("click", (event) => {
      const element = event.target.closest("[data-cell]");
      const inner = event.target.closest("a, button, summary, input, select, label, pre");
      const isOther = element?.contains(inner) && !inner.matches(".open-cell, [data-cell]");
      if (!element?.dataset.cell || isOther) return;
      openMark(element, element.querySelector(".open-cell") || element);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && drawer.open) closeDrawer();
      const mark = event.target.closest?.("svg [data-cell]");
      if (!mark || !/^(Enter| |Arrow.*)$/.test(event.key)) return;
      event.preventDefault();
      if (event.key.startsWith("Arrow")) moveFocus(mark, /Right|Down/.test(event.key) ? 1 : -1);
      else openMark(mark, mark);
    });
  };

  // Marks in a figure are one stop of the tab key; arrows move between them.
  const keepOneStop = () => {
    for (const [drawing, group] of groups) {
      if (!drawing.matches("svg")) continue;
      const on = group.marks.filter((mark) => !mark.isOff);
      group.stop?.element.setAttribute("tabindex", "-1");
      group.stop = on.find((mark) => mark.element === document.activeElement) || on[0];
      group.stop?.element.setAttribute("tabindex", "0");
    }
  };
  const moveFocus = (element, step) => {
    const on = groups.get(element.closest("svg")).marks.filter((mark) => !mark.isOff);
    const place = on.findIndex((mark) => mark.element === element);
    on[(place + step + on.length) % on.length].element.focus();
    keepOneStop();
  };

  fillFilters();
  setUpTable();
  setUpDrawer();
  setUpTip(block);
  markSection();
  addMarks(document);
  update();
  document.addEventListener("toggle", ({ target }) => (parse(target), addMarks(target), showMarks()), true);
  keepClear(byId("filters"));
  document.documentElement.classList.add("has-script");
  const goToView = () => {
    byId(fragment.section)?.scrollIntoView();
    if (view.cell !== null) openDrawer([view.cell]);
    else if (drawer.open) closeDrawer();
  };
  goToView();
  addEventListener("hashchange", () => {
    const found = parseFragment(location.hash);
    const isPlain = !Object.keys(found.values).length; // an anchor of the page: the view stays
    fragment = isPlain ? { ...fragment, section: found.section } : found;
    if (isPlain && drawer.open && isNarrow()) closeDrawer(); // it would cover the section
    if (!isPlain) view = readView(block, found.values);
    update();
    if (!isPlain) goToView();
  });
}

/** Parse the inert text of an opened fold. */
function parse(fold) {
  for (const child of fold.querySelectorAll(":scope > noscript")) child.outerHTML = child.textContent;
}

/** Keep anchors clear of the sticky bar, at any height of it. */
function keepClear(bar) {
  const set = () => (document.documentElement.style.scrollPaddingTop = `${bar.offsetHeight + 8}px`);
  new ResizeObserver(set).observe(bar);
  set();
}

const FOLDED = "#cells-table, details:not([open]) > :not(summary, [data-filter-group] *)";
const NO_MATCH = "No cell matches the filters.";
const cellsOf = (element, kind) => (element.dataset[kind] ?? "").split(" ").filter(Boolean).map(Number);

/** Add the rows, tables and figures that are hidden if none of their marks match. */
function addGroups(groups, marks) {
  const kinds = "[data-filter-group], .matrix tbody, .matrix tr, table, figure, svg";
  for (const mark of marks) {
    for (let at = mark.element.closest(kinds); at; at = at.parentElement.closest(kinds)) {
      if (!groups.has(at)) groups.set(at, { marks: [], note: noteOf(at) });
      groups.get(at).marks.push(mark);
    }
  }
}

function noteOf(element) {
  if (!element.matches("table, figure")) return null;
  const note = make("p", { class: "quiet no-match", hidden: true }, NO_MATCH);
  if (element.matches("figure")) element.append(note);
  else (element.closest(".scroll") || element).before(note);
  return note;
}

/** Return unfolded elements that represent cells, and make them focusable. */
function findMarks(block, root) {
  const found = [];
  for (const element of root.querySelectorAll("[data-cell]")) {
    if (element.isMark || element.closest(FOLDED)) continue;
    element.isMark = true;
    const cells = cellsOf(element, "cell");
    if (!cells.length) continue;
    const drawing = element.closest("svg");
    const isOne = cells.length === 1;
    const name = isOne ? block.cells.name[cells[0]] : `${cells.length} cells`;
    if (drawing) {
      drawing.setAttribute("role", "group"); // an image has no parts that can be focused
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", "-1");
      element.setAttribute("aria-label", isOne ? `${name}: ${mainNumber(block, cells[0])}` : name);
    } else if (!element.matches("a, button")) {
      const host = element.matches("tr") ? element.cells[0] : element;
      if (host.querySelector("a, button, details, summary, p, ul, pre, br")) {
        const label = isOne ? `Details of ${name}` : null;
        const text = isOne ? "Details" : name;
        host.append(" ", make("button", { type: "button", class: "open-cell more", "aria-label": label }, text));
      } else host.append(make("button", { type: "button", class: "open-cell" }, ...host.childNodes));
    }
    found.push({ element, cells: [...cells, ...cellsOf(element, "others")], isOff: false });
  }
  return found;
}

/** Show name and main number of the mark under the pointer or with the focus. */
function setUpTip(block) {
  const tip = make("div", { id: "tip", "aria-hidden": "true", hidden: true });
  document.body.append(tip);
  const show = (event) => {
    const element = event.target.closest?.("[data-cell]:not(tr)");
    tip.hidden = !element?.dataset.cell || element.classList.contains("is-off");
    if (tip.hidden) return;
    const cells = cellsOf(element, "cell");
    const first = `${block.cells.name[cells[0]]}\n${mainNumber(block, cells[0])}`;
    tip.textContent = cells.length === 1 ? first : `${first}\nand ${cells.length - 1} more`;
    const box = element.getBoundingClientRect();
    const left = Math.min(box.right + 8, innerWidth - tip.offsetWidth - 8);
    const top = box.top > tip.offsetHeight + 8 ? box.top - tip.offsetHeight - 4 : box.bottom + 4;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${top}px`;
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("scroll", () => (tip.hidden = true), { passive: true });
}

/** Mark the section that is being read in the table of contents. */
function markSection() {
  const links = [...document.querySelectorAll('nav a[href^="#"]')];
  const sections = links.map((link) => byId(link.getAttribute("href").slice(1)));
  const visible = new Set();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) visible[entry.isIntersecting ? "add" : "delete"](entry.target);
      const current = sections.findIndex((section) => visible.has(section));
      for (const link of links) link.removeAttribute("aria-current");
      if (current >= 0) links[current].setAttribute("aria-current", "true");
    },
    { rootMargin: "-20% 0px -60% 0px" },
  );
  for (const section of sections) if (section) observer.observe(section);
}

// The content of the drawer.

/** Return what describes one cell. open: opens the drawer with other cells. */
function cellDetails(block, cell, [first, end], open) {
  const { cells, texts, launches } = block;
  const all = Array.from({ length: end - first }, (_, index) => first + index);
  const status = block.facets.status.values[cells.status[cell]];
  const valid = end > first && `; ${cells.num_ok[cell]} of ${end - first} launches valid`;
  const warning = texts.words[cells.warning[cell]];
  const reason = texts.causes[cells.reason[cell]];
  return [
    make("p", {}, status, valid || null),
    reason && make("p", { class: "cause" }, reason),
    warning && make("p", {}, make("a", { href: "#warnings" }, warning)),
    numberTable(block, cell, "results", "Results", open),
    distribution(all.map((launch) => quantilesOf(launches, launch))),
    launchTable(block, all),
    causes(block, all),
    numberTable(block, cell, "memory", "Memory per rank"),
    comparisons(block, cell, open),
    bucket(block, cell),
    settings(block, cell),
    commands(block, cell, all),
    source(cells, cell, end - first),
  ].filter(Boolean);
}

const whole = (number) => number.toLocaleString("en-US");
const quiet = (...children) => make("p", { class: "quiet" }, ...children);

function part(title, ...children) {
  return make("section", {}, make("h3", {}, title), ...children);
}

/** Return a table in a region that scrolls. rows: a name and its values; words are elements. */
function tableOf(caption, heads, rows) {
  const kind = (value) => (typeof value === "string" ? "number" : "text");
  const headOf = (text, column) => make("th", { scope: "col", class: column ? kind(rows[0][column]) : null }, text);
  const cellOf = (value) => make("td", { class: kind(value) }, value);
  const body = rows.map(([name, ...values]) => make("tr", {}, make("th", { scope: "row" }, name), values.map(cellOf)));
  const head = make("thead", {}, make("tr", {}, heads.map(headOf)));
  const table = make("table", {}, make("caption", {}, caption), head, make("tbody", {}, body));
  return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, table);
}

function wordTable(caption, lines) {
  return tableOf(caption, ["", "value"], lines.map(([name, text]) => [name, make("span", {}, text)]));
}

function numberTable(block, cell, group, title, open) {
  const { cells, texts } = block;
  const end = (key, name) => cells[`${key}_${name}`]?.[cell];
  const kinds = new Set();
  const rows = block.columns
    .filter((column) => column.group === group && cells[column.key][cell] !== null)
    .map(({ key, label, digits, note }) => {
      const kind = texts.intervals[end(key, "interval")];
      const interval = intervalText(end(key, "low"), end(key, "high"), kind);
      if (interval) kinds.add(kind === "range" ? "(a to b): range over launches" : "[a, b]: 95 % confidence interval");
      return [[label, note && make("span", { class: "note" }, note)], three(cells[key][cell], digits), interval];
    });
  if (!rows.length) return null;
  const heads = kinds.size ? ["", "value", "range or 95 % CI"] : ["", "value"];
  if (!kinds.size) rows.forEach((row) => row.pop());
  const n = `${group === "memory" ? "maximum over ranks and launches, " : ""}n = ${cells.num_launches[cell]}`;
  const baseline = open && cells.baseline[cell] !== null ? baselineNote(block, cells.baseline[cell], open) : null;
  return part(title, tableOf([n, ...kinds].join("; "), heads, rows), baseline);
}

function baselineNote(block, baseline, open) {
  const button = cellButton(block, baseline, open);
  return quiet("Efficiency relative to ", button, `, n = ${block.cells.num_launches[baseline]}`);
}

function cellButton(block, cell, open) {
  return make("button", { type: "button", class: "open-cell", onclick: () => open([cell]) }, block.cells.name[cell]);
}

const timeOf = (launches, name, launch) => launches[`${name}_ms`]?.[launch] ?? null;

function quantilesOf(launches, launch) {
  return Object.fromEntries(["min", "p50", ...UPPER, "max"].map((name) => [name, timeOf(launches, name, launch)]));
}

function distribution(quantiles) {
  const width = 330;
  const drawn = strips(quantiles, width);
  if (!drawn) return null;
  const height = 22 * drawn.rows.length;
  const left = 60;
  const svg = make("svg", { viewBox: `0 0 ${width + left + 20} ${height + 36}`, role: "img", class: "strips" });
  const draw = (...parts) => svg.append(make(...parts));
  svg.setAttribute("aria-label", `Iterations by launch (${drawn.unit}); numbers: table of launches`);
  for (const { x, text } of drawn.ticks) {
    draw("line", { class: "grid-line", x1: left + x, x2: left + x, y1: 0, y2: height });
    draw("text", { x: left + x, y: height + 15, "text-anchor": "middle" }, text);
  }
  drawn.rows.forEach((row, index) => {
    const y = 22 * index + 11;
    draw("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, `launch ${index + 1}`);
    if (!row) return draw("text", { x: left + 4, y: y + 4 }, "n/a");
    draw("line", { x1: left + row.line[0], x2: left + row.line[1], y1: y, y2: y });
    if (row.bar) draw("rect", { x: left + row.bar[0], y: y - 4, width: row.bar[1] - row.bar[0], height: 8 });
    draw("line", { class: "median", x1: left + row.median, x2: left + row.median, y1: y - 8, y2: y + 8 });
    if (row.isClipped) draw("text", { x: left + width + 4, y: y + 4 }, "›");
  });
  draw("text", { x: left + width / 2, y: height + 32, "text-anchor": "middle" }, `time per iteration (${drawn.unit})`);
  const key = quantiles.some((launch) => launch.max !== null)
    ? "Line: minimum to maximum. Tick: median. Bar: median to the largest known of p75, p90, p95, p99."
    : "Tick: median.";
  const clipped = drawn.rows.some((row) => row?.isClipped) ? " ›: the maximum is beyond the axis." : "";
  return part("Iterations by launch", svg, quiet(`Synchronized iterations. ${key}${clipped}`));
}

function launchTable(block, all) {
  if (!all.length) return null;
  const { launches, texts, files } = block;
  const times = ["window", "min", "p50", "p75", "p90", "p95", "p99", "max"].filter((name) =>
    all.some((launch) => timeOf(launches, name, launch) !== null),
  );
  const { factor, unit } = timeUnit(all.map((launch) => launches.p50_ms[launch]).find((value) => value !== null) ?? 1);
  const rows = all.map((launch) => {
    const file = texts.files[launches.file[launch]];
    const link = file && make("a", { href: address(`launches/${file}.jsonl`) }, `${file}.jsonl`);
    const hosts = files.hosts[launches.file[launch]];
    const record = make("span", { class: "id" }, link ? [link, ` line ${launches.line[launch]}`] : "n/a", hosts && ` on ${hosts}`);
    const values = times.map((name) => timeOf(launches, name, launch)).map((value) => three(value && value * factor, 4));
    const status = make("span", {}, texts.statuses[launches.status[launch]]);
    return [String(launches.repeat[launch] + 1), status, ...values, record];
  });
  const heads = times.map((name) => `${name === "window" ? "pipelined" : name} (${unit})`);
  const caption = `${times[0] === "window" ? "Pipelined: in windows. " : ""}Quantiles: synchronized iterations`;
  return part("Launches", tableOf(caption, ["launch", "status", ...heads, "record"], rows));
}

/** Return why launches are not ok, with hosts and log of each. */
function causes(block, all) {
  const { launches, texts, files } = block;
  const itemOf = (launch) => {
    const log = texts.logs[launches.log[launch]];
    const others = texts.words[launches.others[launch]];
    const cause = make("p", { class: "cause" }, texts.causes[launches.cause[launch]]);
    const hosts = others && make("p", {}, `Hosts: ${files.hosts[launches.file[launch]]}. ${others}`);
    const link = log && make("p", { class: "trace" }, "log: ", make("a", { href: address(log) }, log));
    return make("li", {}, `launch ${launches.repeat[launch] + 1}: ${texts.statuses[launches.status[launch]]}`, cause, hosts, link);
  };
  const items = all.filter((launch) => launches.cause[launch] !== null).map(itemOf);
  return items.length ? part("Failures", make("ul", { class: "plain" }, items)) : null;
}

/** Return a path of the results folder as an address beside the page. */
function address(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

function pText(value) {
  return value !== null && value < 0.001 ? "< 0.001" : three(value);
}

function comparisons(block, cell, open) {
  const { comparisons: rows, texts } = block;
  const found = [];
  rows.cell.forEach((other, row) => {
    if (other !== cell && rows.reference[row] !== cell) return;
    const word = (name) => texts.words[rows[name][row]];
    const kind = texts.intervals[rows.interval[row]];
    const title = `${word("axis")}: ${word("value")} against ${word("reference_value")}`;
    const partner = other === cell ? rows.reference[row] : other;
    const lines = [
      ["Verdict", word("verdict") ?? "n/a"],
      ["Ratio of times", `${ratioText(rows.ratio[row])} ${intervalText(rows.low[row], rows.high[row], kind, ratioText)}`],
      ["Test", word("test") ?? "n/a"],
      ["p", pText(rows.p_value[row])],
      ["p, corrected", pText(rows.p_adjusted[row])],
      ["Margin (%)", three(rows.margin[row] && 100 * rows.margin[row])],
      ["Launches", `${rows.num_launches[row]} against ${rows.num_reference_launches[row]}`],
    ];
    if (rows.launches_needed[row]) lines.push(["More launches needed (per side)", `${rows.launches_needed[row]}`]);
    const role = other === cell ? "Reference: " : "Compared with this reference: ";
    found.push(wordTable(title, lines), quiet(role, cellButton(block, partner, open)));
  });
  return found.length ? part("Comparisons", found) : null;
}

/** Return the best and predicted bucket sizes of a cell's curve, and why its model was rejected. */
function bucket(block, cell) {
  const { predictions, texts, cells } = block;
  const row = cells.prediction[cell];
  const lines = [];
  if (row !== null) {
    const ends = intervalText(predictions.low_mib[row], predictions.high_mib[row], "interval");
    lines.push(["Fastest bucket (MiB)", String(predictions.best_mib[row] ?? "n/a")]);
    lines.push(["Within noise of it (MiB)", texts.words[predictions.indistinguishable_mb[row]] ?? "n/a"]);
    lines.push(["Predicted bucket (MiB)", texts.words[predictions.reason[row]] || `${three(predictions.predicted_mib[row])} ${ends}`]);
    const ratio = predictions.ratio[row];
    if (ratio !== null) lines.push(["Predicted / measured (0.5 to 2: agreement)", three(ratio)]);
  }
  if (cells.rejected_fit[cell] !== null) lines.push(["Fitted model", texts.words[cells.rejected_fit[cell]]]);
  return lines.length ? part("Curve", wordTable("From all cells of this curve", lines)) : null;
}

function settings(block, cell) {
  const varied = Object.entries(block.facets)
    .filter(([key]) => key !== "status" && block.cells[key][cell] !== null)
    .map(([key, { label, values }]) => [label, values[block.cells[key][cell]]]);
  const list = [["Cell id", block.cells.id[cell]], ...varied, ...block.common].map(([label, text]) =>
    make("div", {}, make("dt", {}, label), make("dd", {}, text)),
  );
  return part("Settings", make("dl", { class: "facts" }, list));
}

/** Return the commands of all launches and of this cell. */
function commands(block, cell, all) {
  const { launches, files, texts, cells } = block;
  const ran = [...new Set(all.map((launch) => launches.file[launch]))].filter((file) => file !== null && files.argv[file]);
  const itemOf = (file, index) => {
    const line = make("pre", { class: "command", tabindex: "0" }, files.argv[file]);
    return make("details", { open: index === 0 }, make("summary", {}, texts.files[file]), line);
  };
  const items = ran.map(itemOf);
  const byHand = cells.command[cell];
  if (!items.length && byHand === null) return null;
  const stack = quiet(`Stack ${texts.words[cells.stack_facts[cell]]}`);
  const ranPart = items.length ? part("Command as run", stack, items) : null;
  if (byHand === null) return ranPart;
  const done = make("span", { role: "status", class: "quiet" });
  const copy = () => {
    getSelection().selectAllChildren(pre); // navigator.clipboard is missing on some pages from files
    done.textContent = document.execCommand("copy") ? " Copied" : " Copy the selected text";
  };
  const pre = make("pre", { class: "command by-hand", tabindex: "0" }, byHand);
  const button = make("button", { type: "button", onclick: copy }, "Copy");
  const where = quiet("This cell alone, from the project's folder; on a cluster, in an allocation of its shape.");
  return make("div", {}, part("Rerun by hand", where, pre, button, done), ranPart);
}

function source(cells, cell, num) {
  const row = cells.row[cell];
  if (row === null) return null;
  const lines = num > 1 ? ` lines ${row} to ${row + num - 1}` : ` line ${row}`;
  return make("p", { class: "trace" }, "Source: ", make("a", { href: "#csv-measurements" }, "measurements.csv"), lines);
}

if (typeof module === "undefined") {
  if (byId("data-block") && typeof DecompressionStream !== "undefined") readBlock().then(enhance);
} else {
  module.exports = {
    columnText, csv, formatFragment, intervalText, launchRanges, mainNumber, matching, parseFragment, ratioText, readView,
    sorted, strips, three, ticks, timeUnit, viewValues,
  };
}
