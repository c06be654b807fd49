"use strict";
// Filters, drawer, table of all cells and tooltips: the page is complete without them. Names and commands become text
// nodes, never markup.

// The view in the URL's fragment, such as #scaling&model=resnet50: values of facets, search, sort (a column, "-":
// descending) and cell.

function parseFragment(fragment) {
  const pairs = [...new URLSearchParams(fragment.slice(1))];
  const section = pairs.find(([, value]) => !value)?.[0] ?? "";
  return { section, values: Object.fromEntries(pairs.filter(([, value]) => value)) };
}

function formatFragment(section, values) {
  const known = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  const parts = [encodeURIComponent(section), `${known}`].filter(Boolean);
  return parts.length ? `#${parts.join("&")}` : "";
}

/** Return the values that this campaign has, and the others as texts. */
function knownValues({ cells, columns, facets }, values) {
  const isKnown = ([key, value]) => {
    if (key === "sort") return columns.some((column) => column.key === value.replace(/^-/, ""));
    if (key === "cell") return cells.id.includes(value);
    return key === "search" || (Object.hasOwn(facets, key) && facets[key].names.includes(value));
  };
  const pairs = Object.entries(values);
  const ignored = pairs.filter((pair) => !isKnown(pair)).map((pair) => pair.join("="));
  return [Object.fromEntries(pairs.filter(isKnown)), ignored];
}

/** Return for each cell whether it has the values of facets, and all words of the search or an id that ends with it. */
function matching(block, values) {
  const { cells, facets } = block;
  const wanted = Object.keys(facets).filter((key) => values[key]);
  const has = (cell) => (key) =>
    key === "status" && values.status === "warning"
      ? cells.invalid[cell] !== null
      : facets[key].names[cells[key][cell]] === values[key];
  const query = (values.search ?? "").trim().toLowerCase();
  const words = folded(query).split(/[\s,;]+/).filter(Boolean).map(wordPattern);
  const texts = words.length && (block.searched ??= searchTexts(block));
  const isFound = (id, cell) => words.every((word) => word.test(texts[cell])) || `-${id}`.toLowerCase().endsWith(`-${query}`);
  return cells.id.map((id, cell) => wanted.every(has(cell)) && isFound(id, cell));
}

/** Return what a search finds: name, causes, statuses, hosts, and settings as shown and as in a campaign file. */
function searchTexts({ cells, common, facets, words }) {
  const settings = (cell) => Object.entries(facets).map(([key, { search }]) => search[cells[key][cell]]);
  return cells.name.map((name, cell) => folded([name, words[cells.search[cell]], settings(cell), common].join(" ")));
}

/** Return a text as it is compared: 8×4 is 8x4, "4 MiB" 4mib, "32 GPUs" 32gpus, all-reduce allreduce, timed out timeout. */
function folded(text) {
  return text.toLowerCase().replaceAll("×", "x").replace(/time[d -]*out/g, "timeout").replace(/(\d) (?=(?:[kmgt]?i?b|gpus?|process(?:es)?|nodes?)\b)|([a-z])[-_](?=[a-z])/g, "$1$2");
}

/** Return the pattern of a searched word. One with a number is a whole value: 4MiB is not in 64 MiB, n1 not in n10. */
function wordPattern(word) {
  const escaped = word.replace(/\W/g, "\\$&");
  return new RegExp((/^\d/.test(word) ? "(?<![a-z\\d.])" : "") + escaped + (/^\D?\d/.test(word) ? "(?!(?<=\\d)\\d)" : ""));
}

/** Return cells sorted by a column; unknown values come last in both directions. */
function sorted(block, cells, sort) {
  if (!sort) return cells;
  const key = sort.replace(/^-/, "");
  const values = block.cells[key];
  const { compare } = new Intl.Collator("en", { numeric: true });
  return cells.toSorted((a, b) => {
    if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
    return (sort === key ? 1 : -1) * (values[a] - values[b] || compare(values[a], values[b]));
  });
}

function columnText({ cells, facets, texts }, { key, kind }, cell) {
  const value = (kind === "number" ? texts : cells)[key][cell];
  return (kind === "facet" ? facets[key].values[value] : value) ?? "n/a";
}

/** Return the text on a mark. shows: key of the figure's number; without one, the mark's row of the figure's data. */
function markText({ cells, columns, ends, figures, texts }, cell, shows, figure) {
  const isListed = ({ key, is_share: isShare }) => (key === shows || isShare) && texts[key]?.[cell];
  const known = [...columns.filter(isListed), ...columns.filter(({ key }) => key === "num_ok")];
  const lines = known.map(({ key, label }) => `${label}: ${texts[key][cell]} ${ends[key]?.[cell] ?? ""}`.trim());
  const [of, ...marks] = figures?.[figure] ?? [[]];
  const row = of.indexOf(cell);
  const ofMark = marks.filter((mark) => mark[row] && !/^(x$|launch )/.test(mark[0])).map((mark) => `${mark[0]}: ${mark[row]}`);
  if (!texts[shows]?.[cell]) lines.unshift(...(row < 0 ? [texts.main[cell]] : ofMark));
  return [cells.name[cell], ...lines].join("\n");
}

// Files.

/** Return rows as CSV. Texts that look like formulas get an apostrophe. */
function csv(rows) {
  const field = (value) => {
    let text = String(value ?? "");
    if (/^[=+@\t\r'-]/.test(text) && isNaN(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return rows.map((row) => row.map(field).join(",") + "\n").join("");
}

/** Return cells as rows: id, all digits of columns, intervals after numbers. */
function cellRows({ cells, ends, facets }, chosen, columns) {
  const listed = columns.filter(({ key }) => key !== "id").flatMap(({ key, kind, label }) => {
    const valueOf = (cell) => (kind === "facet" ? facets[key].names[cells[key][cell]] : cells[key][cell]);
    const column = [key === "name" ? key : label, valueOf];
    const hasEnds = chosen.some((cell) => ends[key]?.[cell]);
    return hasEnds ? [column, [`${label}: interval`, (cell) => ends[key][cell]]] : [column];
  });
  const rowOf = (cell) => [cells.id[cell], ...listed.map(([, valueOf]) => valueOf(cell))];
  return [["cell", ...listed.map(([head]) => head)], ...chosen.map(rowOf)];
}

function figureRows({ cells, figures }, id) {
  const [of, ...columns] = figures[id];
  return of.map((cell, row) => [cells.id[cell] ?? cell, ...columns.map((column) => column[row])]);
}

/** Return a matrix as it is shown, each row after its group. Minus signs become hyphens. */
function matrixRows(table) {
  const shown = [...table.rows].filter((row) => row.checkVisibility() && row.cells.length > 1);
  const groupOf = (row) => row.parentElement.querySelector("[scope=rowgroup]")?.textContent;
  return shown.map((row) => [groupOf(row), ...[...row.cells].map((cell) => cell.textContent.replace("\u2212", "-"))]);
}

function save(name, rows) {
  const href = URL.createObjectURL(new Blob([csv(rows)]));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

// Elements.

/** Return an element. children: elements, texts or null. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  element.append(...present(children));
  return element;
}

const present = (children) => children.flat().filter((child) => child != null);
const byId = (id) => document.getElementById(id);
const listOf = (selector, root = document) => [...root.querySelectorAll(selector)];
const button = (onclick, attributes, ...children) => Object.assign(make("button", { type: "button", ...attributes }, ...children), { onclick });
const cellButton = ({ cells }, cell) => button(null, { class: "open-cell", "data-cell": cell }, cells.name[cell]);
const cellsOf = ({ dataset }, ...kinds) => kinds.flatMap((kind) => dataset[kind]?.match(/\d+/g) ?? []).map(Number);
const shares = (...nums) => nums.map((num) => num.toLocaleString("en-US")).join(" of ");
const counted = (num, all) => `${shares(num, all)} ${all === 1 ? "cell" : "cells"}`;

function enhance(block) {
  const { cells, facets } = block;
  const [table, drawer, filters, search] = ["cells-table", "drawer", "filters", "filter-search"].map(byId);
  let { section, values } = parseFragment(location.hash);
  let ignored, isOn, numRows;

  // Cells of sections (without marks: those it is about); unfolded marks, and what contains them.

  const ALL = "[data-cell]:not([data-cell=''], #cells *)";
  const MARK = `${ALL}:not(details:not([open], [class]) *)`;
  const ofMark = (element) => cellsOf(element, "cell", "others");
  const inside = new Map(listOf("main > section").map((at) => [at, [...new Set(listOf(ALL, at).flatMap(ofMark))]]));
  const all = [...cells.id.keys()];
  const about = { cells: all, failures: all, timeline: all.filter((cell) => cells.num_planned[cell]) };
  for (const [at, of] of inside) if (!of.length) of.push(...(about[at.id] ?? []));

  let marks, around;
  const findMarks = () => {
    marks = listOf(MARK).map((element) => [element, ofMark(element)]);
    around = listOf("[data-filter-group], .matrix tbody, .matrix tr, table, figure, svg").filter((at) => at.querySelector(MARK));
    for (const [element] of marks) addButton(block, element);
  };

  // Filters.

  const on = (of) => of.filter((cell) => isOn[cell]);
  const contents = listOf("nav a + span").map((state) => [state, state.textContent]);
  const remove = (...keys) => {
    for (const key of keys) delete values[key];
    ignored = [];
    update();
    search.focus();
  };
  const chip = (key) => {
    const { label, names, chips } = facets[key];
    return button(() => remove(key), { class: "chip", title: `Remove: ${label}` }, `${chips[names.indexOf(values[key])]} ×`);
  };
  const showMarks = () => {
    const show = (element, isShown) => element.classList.toggle("is-off", !isShown);
    for (const [element, of] of marks) show(element, on(of).length);
    for (const line of listOf("svg [data-line]")) show(line, cellsOf(line, "line").every((cell) => isOn[cell]));
    for (const at of around) show(at, at.querySelector(`${MARK}:not(.is-off)`));
    for (const [at, of] of inside) show(at, on(of).length || !of.length);
  };
  const update = () => {
    isOn = matching(block, values);
    showMarks();
    const active = Object.keys(values).filter((key) => facets[key] && values[key]);
    const isFiltered = active.length || values.search;
    for (const [state, text] of contents) {
      const of = inside.get(byId(state.previousElementSibling.hash.slice(1))) ?? [];
      const isCounted = isFiltered && of.length && text !== "none";
      state.textContent = isCounted ? shares(on(of).length, of.length) : text;
    }
    byId("filter-count").textContent = counted(on(all).length, all.length);
    byId("filter-ignored").textContent = ignored.join(", ");
    byId("filter-chips").replaceChildren(...active.map(chip));
    byId("filter-reset").disabled = !isFiltered;
    for (const control of listOf("[name]", filters)) control.value = values[control.name] ?? "";
    numRows = all.length > 30 && matchMedia("(min-width: 40.01rem)").matches ? 25 : 8;
    fillTable();
    writeFragment();
  };
  const writeFragment = () => {
    history.replaceState({}, "", formatFragment(section, values) || location.pathname + location.search);
  };
  filters.oninput = ({ target }) => {
    values[target.name] = target.value;
    update();
  };
  search.onfocus = () => (block.searched ??= searchTexts(block));
  byId("filter-reset").onclick = () => remove("search", ...Object.keys(facets));

  // Table.

  const chosen = () => sorted(block, on(block.order), values.sort);
  const columns = () => {
    const shown = new FormData(byId("cells-columns-list"));
    return block.columns.filter(({ key }) => key === "name" || shown.has(key));
  };
  const headCell = ({ key, kind, label, is_larger_worse: isLargerWorse }) => {
    const orders = isLargerWorse ? [`-${key}`, key] : [key, `-${key}`]; // the worst cells first
    const place = orders.indexOf(values.sort);
    const sort = () => {
      values.sort = orders[place + 1];
      fillTable();
      writeFragment();
      table.querySelector(`[data-column="${CSS.escape(key)}"]`).focus();
    };
    const direction = place < 0 ? null : values.sort === key ? "ascending" : "descending";
    return make("th", { scope: "col", class: kind, "aria-sort": direction }, button(sort, { "data-column": key }, label));
  };
  const bodyCell = (column, cell) => {
    const { key, kind, links, strips } = column;
    if (links) return make("td", {}, linksOf(column, cell));
    const text = columnText(block, column, cell);
    const strip = strips && make("span", { class: "strip", style: strips[cell] });
    if (key !== "name") return make("td", { class: kind, title: block.ends[key]?.[cell] }, strip, text);
    const title = block.words[cells.invalid[cell]];
    const badge = title && [" ", make("a", { class: "badge", href: "#warnings", title }, "⚠")];
    return make("th", { scope: "row", class: "text" }, button(null, { class: "open-cell" }, text), badge);
  };
  const fillTable = (least = 0) => {
    const [rows, listed] = [chosen(), columns()];
    const num = Math.min(Math.max(numRows, least), rows.length);
    const rowOf = (cell) => make("tr", { "data-cell": cell }, listed.map((column) => bodyCell(column, cell)));
    table.tHead.replaceChildren(make("tr", {}, listed.map(headCell)));
    table.tBodies[0].replaceChildren(...rows.slice(0, num).map(rowOf));
    byId("cells-count").textContent = `${counted(num, rows.length)} shown`;
    byId("cells-more").hidden = rows.length <= num;
  };
  byId("cells-columns-list").onchange = () => fillTable();
  byId("cells-more").onclick = () => {
    numRows += 100;
    fillTable();
    table.tBodies[0].rows[numRows - 100].querySelector("button").focus();
  };
  byId("cells-csv").onclick = () => save("shown.csv", cellRows(block, chosen(), columns()));
  addEventListener("beforeprint", () => fillTable(50));
  addEventListener("afterprint", () => fillTable());

  // Drawer.

  const openDrawer = (indices, from) => {
    const [cell] = indices.length === 1 ? indices : [];
    values.cell = cells.id[cell];
    byId("drawer-title").textContent = cells.name[cell] ?? `${indices.length} cells`;
    byId("drawer-body").replaceChildren(cell === undefined ? make("ul", { class: "plain" }, indices.map(item)) : cellDetails(block, cell));
    tip.textContent = "";
    from?.focus({ preventScroll: true }); // gets the focus back
    drawer.showPopover();
    byId("drawer-title").focus();
    drawer.scrollTop = 0;
    if (from?.closest("#comparisons")) byId("drawer-comparisons")?.scrollIntoView();
    writeFragment();
  };
  drawer.onbeforetoggle = ({ newState }) => {
    if (newState === "open") return;
    delete values.cell;
    writeFragment();
  };
  const item = (cell) => make("li", {}, cellButton(block, cell), ` ${facets.status.values[cells.status[cell]]}; ${block.texts.main[cell]}`);
  document.addEventListener("click", ({ target }) => {
    const element = target.closest("[data-cell]");
    const inner = target.closest("a, button, summary, input, select, label, pre");
    if (inner?.matches(".copy")) {
      getSelection().selectAllChildren(inner.previousElementSibling); // navigator.clipboard may be missing
      inner.nextElementSibling.textContent = document.execCommand("copy") ? " Copied" : " Copy the selected text";
    } else if (inner?.matches("#drawer a[href^='#']")) {
      drawer.hidePopover();
    } else if (inner?.matches(".save")) {
      const shown = inner.closest("figure, table");
      const { id } = shown.closest("[id]");
      save(`${id}.csv`, shown.matches("table") ? matrixRows(shown) : figureRows(block, id));
    } else if (element?.dataset.cell && (!element.contains(inner) || inner.matches(".open-cell, [data-cell]"))) {
      const of = cellsOf(element, "cell");
      openDrawer(on(of).length ? on(of) : of, element.querySelector(".open-cell") || element);
    }
  });
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select")) return;
    if (key === "/") {
      event.preventDefault(); // Firefox searches
      search.focus({ preventScroll: true });
      search.scrollIntoView({ block: "nearest" });
    } else if (key === "?") byId("keys").togglePopover();
  });

  const goToView = (isNew) => {
    update();
    if (isNew) byId(section)?.scrollIntoView();
    if (values.cell) openDrawer([cells.id.indexOf(values.cell)]);
    else drawer.hidePopover();
  };
  const tip = make("p", { id: "tip" });
  document.body.append(tip);
  document.addEventListener("pointermove", ({ clientX: x, clientY: y }) => {
    const hit = document.elementsFromPoint(x, y).filter((at) => at.matches("svg [aria-label]"));
    tip.textContent = [...new Set(hit.map((at) => at.ariaLabel))].join("\n\n");
    tip.style = `--x:${x}px;--y:${y}px;--end:${drawer.offsetLeft || innerWidth}px`; // 0: closed or full width
  });
  [values, ignored] = knownValues(block, values);
  findMarks();
  for (const element of listOf("svg [data-mark]")) {
    const of = block.figures[element.closest("figure").id].find(([head]) => head === "launch");
    addLabel(element, of[+element.dataset.mark + 1]);
  }
  goToView(true);
  document.documentElement.classList.add("has-script");
  document.addEventListener("toggle", ({ target }) => target.matches("details") && (findMarks(), showMarks()), true);
  addEventListener("popstate", ({ state }) => {
    const found = parseFragment(location.hash);
    section = found.section;
    // Anchors of the page have no state: the view stays.
    if (!state && !Object.keys(found.values).length) return update();
    [values, ignored] = knownValues(block, found.values);
    goToView(!state);
  });
}

/** Make an element open its cells, by keyboard too: for marks of figures, rows under Data. */
function addButton(block, element) {
  const [cell, ...others] = cellsOf(element, "cell");
  const figure = element.closest("figure");
  const text = others.length ? `${others.length + 1} cells` : markText(block, cell, figure?.dataset.shows, figure?.id);
  if (element.closest("svg")) return addLabel(element, text);
  if (!element.matches("tr, li")) element.title ||= text;
  const host = element.cells?.[0] ?? element;
  if (!host.matches("button, :has(.open-cell)")) host.prepend(button(null, { class: "open-cell" }, host.firstChild));
}

function addLabel(element, ariaLabel) {
  Object.assign(element, { role: "img", ariaLabel }).closest("svg").role = "group";
}

function cellDetails(block, cell) {
  const { cells, columns, comparisons, ends, facets, files, launches, texts, words } = block;
  const body = byId("cell-details").content.cloneNode(true);
  const here = Object.fromEntries(Object.entries(cells).map(([key, values]) => [key, values[cell]]));
  const all = Array.from({ length: here.num_planned }, (_, index) => here.first_launch + index);
  const fill = (name, ...children) => {
    const part = body.getElementById(`drawer-${name}`);
    const found = present(children);
    if (found.length) (part.querySelector("[data-fill]") ?? part).append(...found);
    else part.remove();
  };
  const row = (name, ...values) => make("tr", {}, make("th", { scope: "row" }, name), values.map((value) => make("td", {}, value)));
  const numberRows = (group) => columns
    .filter((column) => column.group === group && texts[column.key][cell] !== null)
    .map(({ key, label, note }) => row([label, note && make("span", { class: "note" }, note)], texts[key][cell], ends[key][cell]));

  const times = block.times[here.times] ?? [];
  const textOf = (time) => (time === null ? "n/a" : (time / 10 ** here.decimals).toLocaleString("en-US", { minimumSignificantDigits: 4 }));
  const launchRows = (launch) => {
    const [status, cause, others, log, place] = ["status", "cause", "others", "log", "place"].map((name) => words[launches[name][launch]]);
    const file = launches.file[launch];
    const record = files.names[file] ? make("a", { href: files.addresses[file] }, files.names[file]) : "n/a";
    let time = 0; // stored: changes from time to time
    const known = times.map(([name]) => [name, launches[name][launch] === null ? null : (time += launches[name][launch])]);
    const strip = launchStrip(Object.fromEntries(known), here);
    const found = row(launches.launch[launch], [status, strip && make("span", strip)], ...known.map(([, value]) => textOf(value)), make("span", { class: "id" }, record, place));
    if (!cause) return found;
    const link = log && make("p", { class: "trace" }, "log: ", make("a", { href: log }, log));
    return [found, make("tr", {}, make("td", { colspan: 9 }, make("div", {}, make("p", { class: "cause" }, cause), others, link)))];
  };
  const lineRows = (lines) => lines.map((line) => row(...line));
  const pair = (of, place) => {
    const other = { [of]: comparisons.reference[place], [comparisons.reference[place]]: of }[cell];
    if (other === undefined) return [];
    return lineRows([[comparisons.title[place], ""], ...comparisons.lines[place], ["other cell", cellButton(block, other)]]);
  };
  const settings = Object.entries(facets).map(([key, { label, values }]) => [label, key !== "status" && values[here[key]]]);
  const setting = ([label, text]) => (text ? make("div", {}, make("dt", {}, label), make("dd", {}, text)) : null);
  const ran = [...new Set(all.map((launch) => launches.file[launch]))].filter((file) => files.argv[file]);
  const command = (file) => make("details", {}, make("summary", {}, files.names[file]), make("pre", { class: "command", tabindex: "0" }, files.argv[file]));

  fill("status", `${facets.status.values[here.status]}; ${markText(block, cell).split("\n").pop().toLowerCase()}`);
  fill("reason", words[here.reason] ?? all.map((launch) => words[launches.cause[launch]]).find(Boolean));
  fill("warning", words[here.warning]);
  fill("results", numberRows("results"));
  fill("reports", columns.flatMap((column) => linksOf(column, cell)));
  fill("baseline", here.baseline === null ? null : cellButton(block, here.baseline));
  body.querySelector("#drawer-launches th:last-child").before(...times.map(([, label]) => make("th", { scope: "col" }, `${label} (${here.time_unit})`)));
  fill("axis", here.low && `axis ${textOf(here.low)} to ${textOf(here.high)} ${here.time_unit}`);
  fill("launches", all.flatMap(launchRows));
  fill("memory", numberRows("memory"));
  fill("comparisons", comparisons.cell.flatMap(pair));
  fill("curve", lineRows(block.curves[here.curve] ?? []));
  fill("settings", [["Cell id", here.id], ...settings, ...block.common].map(setting));
  fill("stack", words[here.stack_facts]);
  fill("command", ran.map(command));
  fill("source", here.row);
  fill("rerun", here.command);
  return body;
}

/** Return the strip of a launch: its range, and a box from median to largest known percentile. */
function launchStrip({ min, max, ...boxes }, { low, high }) {
  const box = Object.values(boxes).findLast(Boolean);
  const ends = { low: min ?? boxes.p50, from: boxes.p50, to: box, high: max ?? box };
  const place = (time) => (100 * (Math.min(time, high) - low)) / (high - low || 1);
  const style = Object.entries(ends).map(([name, time]) => `--${name}:${place(time)}%`).join(";");
  return boxes.p50 ? { class: max > high ? "strip is-beyond" : "strip", style } : null;
}

function linksOf({ links }, cell) {
  return (links?.[cell] ?? []).flatMap(([text, href]) => [make("a", { href }, text), " "]);
}

if (typeof module === "undefined") {
  const read = ({ body }) => new Response(body.pipeThrough(new DecompressionStream("gzip"))).json();
  if (window.DecompressionStream) fetch(`data:;base64,${byId("data-block").textContent}`).then(read).then(enhance);
} else {
  module.exports = { cellRows, columnText, csv, figureRows, formatFragment, knownValues, launchStrip, markText, matching, parseFragment, sorted };
}
