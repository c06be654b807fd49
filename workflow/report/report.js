"use strict";
// Filters, cell drawer and table of all cells of the report. The page is complete without this script. All numbers are
// texts of the data block. Names, causes and commands may contain anything: they become text nodes, never markup.

// The view: what is filtered, searched, sorted and open. It lives in the fragment of the URL.

/** Return section and values of a fragment such as #scaling&model=resnet50. */
function parseFragment(fragment) {
  const pairs = [...new URLSearchParams(fragment.replace(/^#/, ""))];
  const section = pairs.find(([, value]) => !value)?.[0] ?? "";
  return { section, values: Object.fromEntries(pairs.filter(([, value]) => value)) };
}

function formatFragment(section, values) {
  const parts = [encodeURIComponent(section), new URLSearchParams(values).toString()].filter(Boolean);
  return parts.length ? "#" + parts.join("&") : "";
}

/** Return the view of a fragment's values. `ignored` lists what this campaign does not have. */
function readView(block, values) {
  const view = { filters: {}, query: values.search ?? "", sort: null, cell: null, ignored: [] };
  for (const [key, value] of Object.entries(values)) {
    const index = Object.hasOwn(block.facets, key) ? block.facets[key].names.indexOf(value) : -1;
    const sort = value.replace(/^-/, "");
    const cell = block.cells.id.indexOf(value);
    if (index >= 0) view.filters[key] = index;
    else if (key === "sort" && block.columns.some((column) => column.key === sort)) {
      view.sort = { key: sort, isDescending: value !== sort };
    } else if (key === "cell" && cell >= 0) view.cell = cell;
    else if (key !== "search") view.ignored.push(`${key}=${value}`);
  }
  return view;
}

/** Return the values of a view for a fragment. */
function viewValues(block, { filters, query, sort, cell }) {
  const values = {};
  for (const [key, index] of Object.entries(filters)) values[key] = block.facets[key].names[index];
  if (query) values.search = query;
  if (sort) values.sort = (sort.isDescending ? "-" : "") + sort.key;
  if (cell !== null) values.cell = block.cells.id[cell];
  return values;
}

/** Return for each cell whether it passes the filters and contains all words of the search. */
function matching(block, view) {
  const { cells, facets } = block;
  const passes = (cell) => ([key, index]) =>
    key === "status" && facets.status.names[index] === "warning" ? cells.invalid[cell] !== null : cells[key][cell] === index;
  const words = view.query.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = words.length ? (block.searched ??= searchTexts(block)) : [];
  const wanted = Object.entries(view.filters);
  return cells.id.map((_, cell) => wanted.every(passes(cell)) && words.every((word) => texts[cell].includes(word)));
}

/** Return the searchable text of cells: name, id, causes and hosts. */
function searchTexts({ cells, launches, files, words }) {
  return launchRanges(cells.num_planned).map(([first, end], cell) => {
    const found = new Set([cells.name[cell], cells.id[cell], words[cells.reason[cell]]]);
    for (let launch = first; launch < end; launch++) {
      found.add(words[launches.cause[launch]]).add(files.hosts[launches.file[launch]]);
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
function columnText({ cells, facets, texts }, { key, kind }, cell) {
  const value = (kind === "number" ? texts : cells)[key][cell];
  return (kind === "facet" ? facets[key].values[value] : value) ?? "n/a";
}

/** Return cells as CSV with the id first. Numbers have all digits; unknown is empty. */
function csv({ cells, facets }, chosen, columns) {
  const listed = columns.filter((column) => column.key !== "id");
  const quoted = (value) => {
    if (/^[=+@\t\r'-]/.test(value) && isNaN(value)) value = `'${value}`;
    return /[",\r\n]/.test(value) ? `"${value.replace(/"/g, '""')}"` : value;
  };
  const textOf = ({ key, kind }, cell) => {
    const value = cells[key][cell];
    return String((kind === "facet" ? facets[key].names[value] : value) ?? "");
  };
  const rows = chosen.map((cell) => [cells.id[cell], ...listed.map((column) => textOf(column, cell))]);
  const head = ["cell", ...listed.map((column) => column.label)];
  return [head, ...rows].map((row) => row.map(quoted).join(",") + "\n").join("");
}

/** Return the first shown number of a cell with its label: "Step time (ms): 12.3". */
function mainNumber({ columns, texts }, cell) {
  const isMain = ({ key, is_shown, group }) => is_shown && group === "results" && texts[key][cell] !== null;
  const column = columns.find(isMain);
  return column ? `${column.label}: ${texts[column.key][cell]}` : "no result";
}

/** Return [first, end) of the launches of each cell. */
function launchRanges(numPlanned) {
  let end = 0;
  return numPlanned.map((num) => [end, (end += num)]);
}

/**
 * Return one strip per launch on an axis from 0 to `width`: line from minimum to maximum, bar from the median to the
 * largest known quantile. A maximum far beyond the bars is clipped. launches: texts of quantiles by name; ends: of the axis.
 */
function strips(launches, width) {
  const known = launches.filter((launch) => launch.p50);
  if (!known.length) return null;
  const upper = (launch) => launch.p99 ?? launch.p95 ?? launch.p90 ?? launch.p75 ?? launch.p50;
  const extreme = (texts, isMore) => texts.reduce((a, b) => ((isMore ? +b > +a : +b < +a) ? b : a));
  const low = extreme(known.map((launch) => launch.min ?? launch.p50), false);
  const bars = extreme(known.map(upper), true);
  const most = extreme(known.map((launch) => launch.max ?? upper(launch)), true);
  const high = bars - low > 0 && most - low > 4 * (bars - low) ? bars : most;
  const x = (text) => (high === low ? width / 2 : Math.round((width * (Math.min(text, high) - low)) / (high - low)));
  const stripOf = (launch) => ({
    line: [x(launch.min ?? launch.p50), x(launch.max ?? launch.p50)],
    bar: [x(launch.p50), x(upper(launch))],
    isClipped: +(launch.max ?? launch.p50) > +high,
  });
  return { ends: [low, high], rows: launches.map((launch) => (launch.p50 ? stripOf(launch) : null)) };
}

/** Return an element. children: elements or texts; what is null is left out. */
function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "line", "rect", "text", "title"].includes(tag);
  const element = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value != null && value !== false) element.setAttribute(name, value === true ? "" : value);
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

const FOLDED = "#cells-table, details:not([open]) > :not(summary, [data-filter-group] *)";
const NO_MATCH = "No cell matches the filters.";
const FIRST_FILTERS = ["model", "stack", "shape", "bucket", "status"];
const cellsOf = (element, kind) => (element.dataset[kind] ?? "").split(" ").filter(Boolean).map(Number);
const counted = (num, all) => `${num.toLocaleString("en-US")} of ${all.toLocaleString("en-US")} ${all === 1 ? "cell" : "cells"}`;

/** Add filters, drawer and table to the page. */
function enhance(block) {
  const { cells } = block;
  const table = byId("cells-table");
  const drawer = byId("drawer");
  const ranges = launchRanges(cells.num_planned);
  const marks = [];
  const groups = new Map();
  const selects = {};
  const shown = new Set(block.columns.filter((column) => column.is_shown).map((column) => column.key));
  let fragment = parseFragment(location.hash);
  let view = readView(block, fragment.values);
  let isOn = [];
  let numRows = 0;
  let opener = null;

  const setUpFilters = () => {
    for (const { key, help } of block.columns.filter(({ key }) => block.facets[key]?.values.length > 1)) {
      const { label, values } = block.facets[key];
      const options = ["All", ...values].map((text, place) => make("option", { value: place ? place - 1 : "" }, text));
      const select = (selects[key] = make("select", { name: key }, options));
      select.addEventListener("change", () => {
        if (select.value === "") delete view.filters[key];
        else view.filters[key] = Number(select.value);
        update();
      });
      const box = make("label", { title: help }, label, select);
      if (FIRST_FILTERS.includes(key)) byId("filter-more").before(box);
      else byId("filter-rest").append(box);
    }
    byId("filter-more").hidden = !byId("filter-rest").children.length;
    byId("filter-more").open = Object.keys(view.filters).some((key) => !FIRST_FILTERS.includes(key));
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
  };

  /** Have anchors scroll to below the sticky bar, which may have another line after a choice. */
  const keepClear = () => (document.documentElement.style.scrollPaddingTop = `${byId("filters").offsetHeight + 8}px`);

  /** Show what the view says: filters, marks, table and URL. */
  const update = () => {
    isOn = matching(block, view);
    showMarks();
    const num = isOn.filter(Boolean).length;
    byId("filter-count").textContent = counted(num, isOn.length) + (num ? "" : ": no cell matches");
    byId("filter-ignored").textContent = view.ignored.length ? `Ignored in the address: ${view.ignored.join(", ")}` : "";
    for (const [key, select] of Object.entries(selects)) select.value = view.filters[key] ?? "";
    byId("filter-search").value = view.query;
    const isFiltered = Object.keys(view.filters).length > 0 || view.query !== "";
    byId("filter-scope").hidden = !isFiltered;
    byId("filter-reset").disabled = !isFiltered && !view.ignored.length;
    numRows = isOn.length > 30 && !isNarrow() ? 25 : 8;
    fillTable();
    writeFragment();
    keepClear();
  };

  const writeFragment = () => {
    const hash = formatFragment(fragment.section, viewValues(block, view));
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
  };

  const chosen = () => sorted(block, block.order.filter((cell) => isOn[cell]), view.sort);
  const columns = () => block.columns.filter((column) => shown.has(column.key));

  const headCell = ({ key, kind, label, is_larger_worse: isFirst = false }) => {
    const isDescending = view.sort?.key === key ? view.sort.isDescending : null;
    const sort = () => {
      const next = isDescending === null ? isFirst : !isDescending; // the worst cells first
      view.sort = isDescending !== null && next === isFirst ? null : { key, isDescending: next };
      fillTable();
      writeFragment();
      table.querySelector(`[data-column="${CSS.escape(key)}"]`).focus();
    };
    const direction = isDescending === null ? null : isDescending ? "descending" : "ascending";
    const mark = direction && make("span", { "aria-hidden": "true" }, isDescending ? " ▼" : " ▲");
    const button = make("button", { type: "button", "data-column": key, onclick: sort }, label, mark);
    return make("th", { scope: "col", class: kind, "aria-sort": direction }, button);
  };

  const bodyCell = (column, cell) => {
    const text = columnText(block, column, cell);
    if (column.key !== "name") return make("td", { class: column.kind }, text);
    const title = block.words[cells.invalid[cell]];
    const badge = title && [" ", make("a", { class: "badge", href: "#warnings", title }, "⚠")];
    return make("th", { scope: "row", class: "text" }, make("button", { type: "button", class: "open-cell" }, text), badge);
  };

  const fillTable = (least = 0) => {
    const rows = chosen();
    const num = Math.min(Math.max(numRows, least), rows.length);
    const rowOf = (cell) => make("tr", { "data-cell": cell }, columns().map((column) => bodyCell(column, cell)));
    table.tHead.replaceChildren(make("tr", {}, columns().map(headCell)));
    table.tBodies[0].replaceChildren(...rows.slice(0, num).map(rowOf));
    byId("cells-count").textContent = rows.length ? `${counted(num, rows.length)} shown` : NO_MATCH;
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

  const openDrawer = (indices, from) => {
    if (from && !drawer.contains(from)) opener = from;
    view.cell = indices.length === 1 ? indices[0] : null;
    byId("drawer-title").textContent = view.cell === null ? `${indices.length} cells` : cells.name[view.cell];
    const details = () => cellDetails(block, view.cell, ranges[view.cell], openDrawer);
    byId("drawer-body").replaceChildren(...(view.cell === null ? [cellList(indices)] : details()));
    if (!drawer.open) drawer.show();
    drawer.scrollTop = 0;
    byId("drawer-title").focus();
    if (from?.closest("#comparisons")) byId("drawer-comparisons")?.scrollIntoView();
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
    const textOf = (cell) => ` ${block.facets.status.values[cells.status[cell]]}; ${mainNumber(block, cell)}`;
    const itemOf = (cell) => make("li", {}, cellButton(block, cell, openDrawer), textOf(cell));
    return make("ul", { class: "plain" }, indices.map(itemOf));
  };
  const setUpDrawer = () => {
    byId("drawer-close").addEventListener("click", closeDrawer);
    document.addEventListener("click", ({ target }) => {
      const element = target.closest("[data-cell]");
      const inner = target.closest("a, button, summary, input, select, label, pre");
      const isOther = element?.contains(inner) && !inner.matches(".open-cell, [data-cell]");
      if (!element?.dataset.cell || isOther) return;
      const all = cellsOf(element, "cell");
      const on = all.filter((cell) => isOn[cell]);
      openDrawer(on.length ? on : all, element.querySelector(".open-cell") || element);
    });
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape" && drawer.open) closeDrawer();
    });
  };

  const goToView = () => {
    byId(fragment.section)?.scrollIntoView();
    if (view.cell !== null) openDrawer([view.cell]);
    else if (drawer.open) closeDrawer();
  };

  setUpFilters();
  setUpTable();
  setUpDrawer();
  markSection();
  addMarks(block, document, marks, groups);
  update();
  document.addEventListener("toggle", ({ target }) => {
    for (const child of target.querySelectorAll(":scope > noscript")) child.outerHTML = child.textContent; // inert until now
    addMarks(block, target, marks, groups);
    showMarks();
  }, true);
  new ResizeObserver(keepClear).observe(byId("filters"));
  document.documentElement.classList.add("has-script");
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

/** Add the unfolded elements that represent cells, and the rows, tables and figures that are hidden if none matches. */
function addMarks(block, root, marks, groups) {
  const kinds = "[data-filter-group], .matrix tbody, .matrix tr, table, figure, svg";
  for (const element of root.querySelectorAll("[data-cell]")) {
    const cells = cellsOf(element, "cell");
    if (element.isMark || element.closest(FOLDED) || !cells.length) continue;
    element.isMark = true;
    const mark = { element, cells: [...cells, ...cellsOf(element, "others")], isOff: false };
    marks.push(mark);
    addButton(block, element, cells);
    for (let at = element.closest(kinds); at; at = at.parentElement.closest(kinds)) {
      if (!groups.has(at)) groups.set(at, { marks: [], note: noteOf(at) });
      groups.get(at).marks.push(mark);
    }
  }
}

/** Make an element open its cells, also by keyboard; marks of a figure have their rows under Data for that. */
function addButton(block, element, cells) {
  const isOne = cells.length === 1;
  const name = isOne ? block.cells.name[cells[0]] : `${cells.length} cells`;
  const tip = isOne ? `${name}\n${mainNumber(block, cells[0])}` : name;
  if (element.closest("svg")) element.append(make("title", {}, tip));
  else if (!element.matches("tr, li")) element.title = tip;
  if (element.closest("svg") || element.matches("a, button")) return;
  const host = element.matches("tr") ? element.cells[0] : element;
  if (host.querySelector("a, button, details, summary, p, ul, pre, br")) {
    const label = isOne ? `Details of ${name}` : null;
    const more = { type: "button", class: "open-cell more", "aria-label": label };
    host.append(" ", make("button", more, isOne ? "Details" : name));
  } else host.append(make("button", { type: "button", class: "open-cell" }, ...host.childNodes));
}

function noteOf(element) {
  if (!element.matches("table, figure")) return null;
  const note = make("p", { class: "quiet no-match", hidden: true }, NO_MATCH);
  if (element.matches("figure")) element.append(note);
  else (element.closest(".scroll") || element).before(note);
  return note;
}

/** Mark the section that is being read in the table of contents. */
function markSection() {
  const visible = new Set();
  const links = [...document.querySelectorAll('nav a[href^="#"]')];
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) visible[isIntersecting ? "add" : "delete"](target.id);
    const current = links.find((link) => visible.has(link.hash.slice(1)));
    for (const link of links) link.removeAttribute("aria-current");
    current?.setAttribute("aria-current", "true");
  }, { rootMargin: "-20% 0px -60% 0px" });
  for (const link of links) if (byId(link.hash.slice(1))) observer.observe(byId(link.hash.slice(1)));
}

// The content of the drawer.

/** Return what describes one cell. open: opens the drawer with other cells. */
function cellDetails(block, cell, [first, end], open) {
  const { cells, words } = block;
  const launches = Array.from({ length: end - first }, (_, index) => first + index);
  const status = block.facets.status.values[cells.status[cell]];
  const reason = words[cells.reason[cell]];
  const warning = words[cells.warning[cell]];
  const lines = block.curves[cells.curve[cell]];
  return [
    make("p", {}, status, launches.length ? `; valid launches: ${block.texts.num_ok[cell]}` : null),
    reason && make("p", { class: "cause" }, reason),
    warning && make("p", {}, make("a", { href: "#warnings" }, warning)),
    numberTable(block, cell, "results", "Results", "(a to b): range over launches; [a, b]: 95 % confidence interval"),
    cells.baseline[cell] !== null && quiet("Baseline of the efficiency: ", cellButton(block, cells.baseline[cell], open)),
    distribution(block, cell, launches),
    launchTable(block, cell, launches),
    causes(block, launches),
    numberTable(block, cell, "memory", "Memory per rank", "Maximum over ranks and launches"),
    comparisons(block, cell, open),
    lines && part("Curve", wordTable("From all cells of this curve", lines)),
    settings(block, cell),
    commands(block, cell, launches),
    launches.length && make("p", { class: "trace" }, "Source: ", make("a", { href: "#csv-measurements" }, "measurements.csv"), ` from line ${cells.row[cell]}`),
  ].filter(Boolean);
}

const quiet = (...children) => make("p", { class: "quiet" }, ...children);

function part(title, ...children) {
  const id = `drawer-${title.split(" ")[0].toLowerCase()}`;
  return make("section", { id }, make("h3", {}, title), ...children);
}

/** Return a table in a region that scrolls. rows: a name and its values; words are elements. */
function tableOf(caption, heads, rows) {
  const kind = (value) => (typeof value === "string" ? "number" : "text");
  const headOf = (text, column) => make("th", { scope: "col", class: column ? kind(rows[0][column]) : null }, text);
  const cellOf = (value) => make("td", { class: kind(value) }, value);
  const rowOf = ([name, ...values]) => make("tr", {}, make("th", { scope: "row" }, name), values.map(cellOf));
  const head = make("thead", {}, make("tr", {}, heads.map(headOf)));
  const table = make("table", {}, make("caption", {}, caption), head, make("tbody", {}, rows.map(rowOf)));
  return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, table);
}

function wordTable(caption, lines) {
  return tableOf(caption, ["", "value"], lines.map(([name, text]) => [name, make("span", {}, text)]));
}

function numberTable({ columns, texts, ends }, cell, group, title, caption) {
  const listed = columns.filter((column) => column.group === group && texts[column.key][cell] !== null);
  if (!listed.length) return null;
  const nameOf = ({ label, note }) => [label, note && make("span", { class: "note" }, note)];
  const heads = ["", "value", ...(listed.some(({ key }) => ends[key][cell]) ? ["range or 95 % CI"] : [])];
  const rows = listed.map((column) => [nameOf(column), texts[column.key][cell], ends[column.key][cell]].slice(0, heads.length));
  return part(title, tableOf(caption, heads, rows));
}

function cellButton(block, cell, open) {
  return make("button", { type: "button", class: "open-cell", onclick: () => open([cell]) }, block.cells.name[cell]);
}

function distribution({ cells, launches, times }, cell, all) {
  const [width, left, height] = [330, 60, 22 * all.length];
  const quantilesOf = (launch) => Object.fromEntries(times.map(([name]) => [name, launches[name]?.[launch]]));
  const drawn = strips(all.map(quantilesOf), width);
  if (!drawn) return null;
  const unit = cells.time_unit[cell];
  const label = `Time per iteration by launch (${unit}); numbers: table of launches`;
  const svg = make("svg", { viewBox: `0 0 ${width + left + 20} ${height + 20}`, role: "img", class: "strips", "aria-label": label });
  const draw = (...parts) => svg.append(make(...parts));
  const [low, high] = drawn.ends.map((text) => `${text} ${unit}`);
  draw("text", { x: left, y: height + 15 }, low);
  draw("text", { x: left + width, y: height + 15, "text-anchor": "end" }, high);
  drawn.rows.forEach((row, index) => {
    const y = 22 * index + 11;
    draw("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, `launch ${index + 1}`);
    if (!row) return draw("text", { x: left + 4, y: y + 4 }, "n/a");
    draw("line", { x1: left + row.line[0], x2: left + row.line[1], y1: y, y2: y });
    draw("rect", { x: left + row.bar[0], y: y - 4, width: row.bar[1] - row.bar[0], height: 8 });
    draw("line", { class: "median", x1: left + row.bar[0], x2: left + row.bar[0], y1: y - 8, y2: y + 8 });
    if (row.isClipped) draw("text", { x: left + width + 4, y: y + 4 }, "›");
  });
  const key = "Line: minimum to maximum (›: beyond the axis). Tick: median. Bar: to the largest known of p75, p90, p95, p99.";
  return part("Iterations by launch", svg, quiet(`Synchronized iterations. ${key}`));
}

function launchTable({ cells, launches, times, words, files }, cell, all) {
  if (!all.length) return null;
  const known = times.filter(([name]) => all.some((launch) => launches[name]?.[launch]));
  const rows = all.map((launch) => {
    const file = files.names[launches.file[launch]];
    const hosts = files.hosts[launches.file[launch]];
    const link = file && [make("a", { href: address(`launches/${file}.jsonl`) }, `${file}.jsonl`), ` line ${launches.line[launch]}`];
    const record = make("span", { class: "id" }, link ?? "n/a", hosts && ` on ${hosts}`);
    const values = known.map(([name]) => launches[name][launch] ?? "n/a");
    return [String(launches.launch[launch]), make("span", {}, words[launches.status[launch]]), ...values, record];
  });
  const heads = known.map(([, label]) => `${label} (${cells.time_unit[cell]})`);
  const caption = "Pipelined: in windows. Quantiles: synchronized iterations";
  return part("Launches", tableOf(caption, ["launch", "status", ...heads, "record"], rows));
}

/** Return why launches are not ok, with hosts and log of each. */
function causes({ launches, words, files }, all) {
  const itemOf = (launch) => {
    const log = words[launches.log[launch]];
    const others = words[launches.others[launch]];
    return make(
      "li", {}, `launch ${launches.launch[launch]}: ${words[launches.status[launch]]}`,
      make("p", { class: "cause" }, words[launches.cause[launch]]),
      others && make("p", {}, `Hosts: ${files.hosts[launches.file[launch]]}. ${others}`),
      log && make("p", { class: "trace" }, "log: ", make("a", { href: address(log) }, log)),
    );
  };
  const items = all.filter((launch) => launches.cause[launch] !== null).map(itemOf);
  return items.length ? part("Failures", make("ul", { class: "plain" }, items)) : null;
}

/** Return a path of the results folder as an address beside the page. */
function address(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

function comparisons(block, cell, open) {
  const { cell: others, reference, title, lines } = block.comparisons;
  const found = [];
  others.forEach((other, row) => {
    if (other !== cell && reference[row] !== cell) return;
    const [role, partner] = other === cell ? ["Reference: ", reference[row]] : ["Compared with this reference: ", other];
    found.push(wordTable(title[row], lines[row]), quiet(role, cellButton(block, partner, open)));
  });
  return found.length ? part("Comparisons", found) : null;
}

function settings({ cells, facets, common }, cell) {
  const varied = Object.entries(facets)
    .filter(([key]) => key !== "status" && cells[key][cell] !== null)
    .map(([key, { label, values }]) => [label, values[cells[key][cell]]]);
  const itemOf = ([label, text]) => make("div", {}, make("dt", {}, label), make("dd", {}, text));
  return part("Settings", make("dl", { class: "facts" }, [["Cell id", cells.id[cell]], ...varied, ...common].map(itemOf)));
}

/** Return the commands of this cell alone and of all its launches. */
function commands({ cells, launches, files, words }, cell, all) {
  const ran = [...new Set(all.map((launch) => launches.file[launch]))].filter((file) => files.argv[file]);
  const itemOf = (file, index) => {
    const line = make("pre", { class: "command", tabindex: "0" }, files.argv[file]);
    return make("details", { open: index === 0 }, make("summary", {}, files.names[file]), line);
  };
  const stack = quiet(`Stack ${words[cells.stack_facts[cell]]}`);
  const ranPart = ran.length ? part("Command as run", stack, ran.map(itemOf)) : null;
  if (cells.command[cell] === null) return ranPart;
  const done = make("span", { role: "status", class: "quiet" });
  const pre = make("pre", { class: "command by-hand", tabindex: "0" }, cells.command[cell]);
  const copy = () => {
    getSelection().selectAllChildren(pre); // navigator.clipboard is missing on some pages from files
    done.textContent = document.execCommand("copy") ? " Copied" : " Copy the selected text";
  };
  const button = make("button", { type: "button", onclick: copy }, "Copy");
  const where = quiet("This cell alone, from the project's folder; on a cluster, in an allocation of its shape.");
  return make("div", {}, part("Rerun by hand", where, pre, button, done), ranPart);
}

if (typeof module === "undefined") {
  if (byId("data-block") && typeof DecompressionStream !== "undefined") readBlock().then(enhance);
} else {
  module.exports = {
    columnText, csv, formatFragment, launchRanges, mainNumber, matching, parseFragment, readView, sorted, strips, viewValues,
  };
}
