"use strict";
// Filters, drawer, table of all cells and tooltips: the page is complete without them. Texts never become markup.

// The view in the URL's fragment, such as #scaling&model=resnet50&model=vgg16&search=n07&tab=1&sort=-step_ms&cell=ID.

function parseFragment(fragment) {
  const pairs = [...new URLSearchParams(fragment.slice(1))];
  return [pairs.find(([, value]) => !value)?.[0] ?? "", pairs.filter(([, value]) => value)];
}

function formatFragment(section, values) {
  return [encodeURIComponent(section), `${values}`].filter(Boolean).join("&").replace(/^(?=.)/, "#");
}

/** Return the values that this campaign has, and texts of the others. */
function knownValues({ cells, columns, facets }, values) {
  const isKnown = ([key, value]) => {
    if (key === "sort") return columns.some((column) => column.key === value.replace(/^-/, ""));
    if (key === "cell") return cells.id.includes(value);
    return ["search", "tab"].includes(key) || facets[key]?.names?.includes(value);
  };
  const others = values.filter((pair) => !isKnown(pair));
  return [new URLSearchParams(values.filter(isKnown)), others.map((pair) => pair.join("="))];
}

/** Return for each cell whether it has a value of each facet, and all words of the search or an id that ends with it. */
function matching(block, view) {
  const { cells, facets } = block;
  const wanted = Object.keys(facets).filter((key) => view.has(key)).map((key) => {
    const isWanted = facets[key].names.map((name) => view.has(key, name));
    const isWarned = key === "status" && view.has(key, "warning");
    return (cell) => isWanted[cells[key][cell]] || (isWarned && cells.invalid[cell] !== null);
  });
  const query = (view.get("search") ?? "").trim().toLowerCase();
  const words = folded(query).split(/[\s,;]+/).filter(Boolean).map(wordPattern);
  const texts = words.length && (block.searched ??= searchTexts(block));
  const isFound = (id, cell) => words.every((word) => word.test(texts[cell])) || `-${id}`.toLowerCase().endsWith(`-${query}`);
  return cells.id.map((id, cell) => wanted.every((has) => has(cell)) && isFound(id, cell));
}

/** Return what a search finds of each cell. Settings: as shown, and as in the campaign file. */
function searchTexts({ cells, common, facets, words }) {
  const settings = (cell) => Object.entries(facets).map(([key, { search }]) => search[cells[key][cell]]);
  const textsOf = (cell) => [words[cells.search[cell]], words[cells.warning[cell]], settings(cell), common];
  return cells.name.map((name, cell) => folded([name, ...textsOf(cell)].join(" ")));
}

/** Return a text as it is compared: 8x4 for 8×4, 4mib for "4 MiB", allreduce for all-reduce. */
function folded(text) {
  return text.toLowerCase().replaceAll("×", "x").replace("⚠", "warning").replace(/time[d -]*out/g, "timeout").replace(/(\d) (?=(?:[kmgt]?i?b|gpus?|process(?:es)?|nodes?)\b)|([a-z])[-_](?=[a-z])/g, "$1$2");
}

/** Return the pattern of a searched word. Numbers match as a whole: not 4MiB in 64 MiB, nor n1 in n10. */
function wordPattern(word) {
  const escaped = word.replace(/\W/g, "\\$&");
  return new RegExp((/^\d/.test(word) ? "(?<![a-z\\d.])" : "") + escaped + (/^\D?\d/.test(word) ? "(?!(?<=\\d)\\d)" : ""));
}

/** Return cells sorted by a column, unknown values last. */
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

/** Return the text on a mark. shows: key of its number; else its row of data is shown. */
function markText({ cells, columns, ends, figures, texts }, cell, shows, figure) {
  const isListed = (of) => (of.key === shows || of.is_share) && texts[of.key]?.[cell];
  const known = [...columns.filter(isListed), ...columns.filter(({ key }) => key === "num_ok")];
  const lines = known.map(({ key, label }) => `${label}: ${texts[key][cell]} ${ends[key]?.[cell] ?? ""}`.trim());
  const [of, ...marks] = figures?.[figure] ?? [[]];
  const row = of.indexOf(cell);
  const ofMark = marks.flatMap((mark) => (mark[row] && !/^(x$|launch )/.test(mark[0]) ? `${mark[0]}: ${mark[row]}` : []));
  if (!texts[shows]?.[cell]) lines.unshift(...(row < 0 ? [texts.main[cell]] : ofMark));
  return [cells.name[cell], ...lines].join("\n");
}

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
    const found = [[key === "name" ? key : label, valueOf]];
    if (chosen.some((cell) => ends[key]?.[cell])) found.push([`${label}: interval`, (cell) => ends[key][cell]]);
    return found;
  });
  const known = [["cell", (cell) => cells.id[cell]], ...listed];
  return [known.map(([head]) => head), ...chosen.map((cell) => known.map(([, valueOf]) => valueOf(cell)))];
}

function figureRows({ cells, figures }, id) {
  const [of, ...columns] = figures[id];
  return of.map((cell, row) => [cells.id[cell] ?? cell, ...columns.map((column) => column[row])]);
}

/** Return a matrix as it is shown, each row after its group. */
function matrixRows(table) {
  const shown = [...table.rows].filter((row) => row.checkVisibility() && row.cells.length > 1);
  const groupOf = (row) => row.parentElement.querySelector("[scope=rowgroup]")?.textContent;
  return shown.map((row) => [groupOf(row), ...[...row.cells].map((cell) => cell.textContent.replace("\u2212", "-"))]);
}

function save(name, rows) {
  make("a", { href: URL.createObjectURL(new Blob([csv(rows)])), download: name }).click();
}

/** Return an element. children: elements, texts or null. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  element.append(...present(children));
  return element;
}

const present = (children) => children.flat().filter((child) => child || child === 0);
const byId = (id) => document.getElementById(id);
const listOf = (selector, root = document) => [...root.querySelectorAll(selector)];
const button = (onclick, attributes, ...children) => Object.assign(make("button", { type: "button", ...attributes }, ...children), { onclick });
const cellButton = ({ cells }, cell) => button(null, { class: "open-cell", "data-cell": cell }, cells.name[cell]);
const cellsOf = ({ dataset }, ...kinds) => kinds.flatMap((kind) => dataset[kind]?.match(/\d+/g) ?? []).map(Number);
const shares = (...nums) => nums.map((num) => num.toLocaleString("en-US")).join(" of ");
const counted = (num, all) => `${shares(num, all)} ${byId("filters").dataset.noun}${all === 1 ? "" : "s"}`;

function enhance(block) {
  const { cells, facets } = block;
  const [table, tools, drawer, title, filters, search, tip] = ["cells-table", "cells-tools", "drawer", "drawer-title", "filters", "filter-search", "tip"].map(byId);
  const tabs = listOf("[name=tab]", tools);
  let section, view, ignored, isOn, numRows;

  // Cells of sections (without marks: all they are about), unfolded marks, and what contains these.

  const ALL = "[data-cell]:not([data-cell=''], #cells *)";
  const MARK = `${ALL}:not(details:not([open], [class]) *)`;
  const ofMark = (element) => cellsOf(element, "cell", "others");
  const inside = listOf("main > section").map((at) => [at, [...new Set(listOf(ALL, at).flatMap(ofMark))]]);
  const all = [...cells.id.keys()];
  const about = { cells: all, failures: all, timeline: all.filter((cell) => cells.num_planned[cell]) };
  for (const [at, of] of inside) if (!of.length) of.push(...(about[at.id] ?? []));

  let marks, around;
  const findMarks = () => {
    for (const element of listOf(MARK)) addButton(block, element);
    marks = listOf(`main :is(${MARK})`).map((element) => [element, ofMark(element)]);
    around = listOf("main :is([data-filter-group], .matrix tbody, .matrix tr, table, figure, svg)").filter((at) => at.querySelector(MARK));
  };

  // Filters.

  const on = (of) => of.filter((cell) => isOn[cell]);
  const contents = listOf("nav a + span").map((state) => [state, state.textContent]);
  const set = (key, value) => {
    if (value) view.set(key, value);
    else view.delete(key);
    history.replaceState({}, "", formatFragment(section, view) || location.pathname + location.search);
  };
  const remove = (keys, value) => {
    for (const key of keys) view.delete(key, value);
    ignored = [];
    update();
    search.focus();
  };
  const chip = ([key, value]) => {
    const { label, names, chips } = facets[key];
    return button(() => remove([key], value), { class: "chip", title: `Remove: ${label}` }, `${chips[names.indexOf(value)]} ×`);
  };
  const showMarks = () => {
    const show = (element, isShown) => element.classList.toggle("is-off", !isShown);
    for (const [element, of] of marks) show(element, on(of).length);
    for (const line of listOf("main svg [data-line]")) show(line, cellsOf(line, "line").every((cell) => isOn[cell]));
    for (const at of around) show(at, at.querySelector(`${MARK}:not(.is-off)`));
    for (const [at, of] of inside) show(at, on(of).length || !of.length);
  };
  const update = () => {
    set("search", view.get("search")); // and writes the URL
    isOn = matching(block, view);
    showMarks();
    const active = [...view].filter(([key]) => facets[key]);
    const isFiltered = active.length || view.has("search");
    for (const [state, text] of contents) {
      const [, of] = inside.find(([at]) => `#${at.id}` === state.previousElementSibling.hash) ?? [0, []];
      const isCounted = isFiltered && of.length && text !== "none";
      state.textContent = isCounted ? shares(on(of).length, of.length) : text;
    }
    byId("filter-count").textContent = counted(on(all).length, all.length);
    byId("filter-ignored").textContent = ignored.join(", ");
    byId("filter-chips").replaceChildren(...active.map(chip));
    byId("filter-reset").disabled = !isFiltered;
    for (const box of listOf("[type=checkbox]", filters)) box.checked = view.has(box.name, box.value);
    search.value = view.get("search") ?? "";
    numRows = all.length > 30 && innerWidth > 640 ? 25 : 8;
    fillTable();
  };
  filters.oninput = ({ target: { name, value, checked } }) => {
    if (name === "search") view.set(name, value);
    else if (checked) view.append(name, value);
    else view.delete(name, value);
    update();
  };
  search.onfocus = () => (block.searched ??= searchTexts(block));
  byId("filter-reset").onclick = () => remove(["search", ...Object.keys(facets)]);

  // Table.

  const ofTab = ({ value }) => on(block.order).filter((cell) => cells.benchmark[cell] === +value);
  // Of the chosen tab, or of the first with matching cells.
  const chosen = () => {
    const known = tabs.filter((tab) => ofTab(tab).length);
    const tab = known.find(({ value }) => value === view.get("tab")) ?? known[0];
    if (tab) tab.checked = true;
    return sorted(block, tab ? ofTab(tab) : on(block.order), view.get("sort"));
  };
  const columns = () => {
    const shown = new FormData(tools);
    const isKnown = (column) => column.links || rows.some((cell) => columnText(block, column, cell) !== "n/a");
    return block.columns.filter((column) => column.key === "name" || (shown.has(column.key) && isKnown(column)));
  };
  const headCell = ({ key, kind, label, ...of }) => {
    const orders = of.is_larger_worse ? [`-${key}`, key] : [key, `-${key}`]; // the worst cells first
    const sort = () => {
      set("sort", orders[orders.indexOf(view.get("sort")) + 1]);
      fillTable();
      table.querySelector(`[data-column="${key}"]`).focus();
    };
    const direction = { [key]: "ascending", [`-${key}`]: "descending" }[view.get("sort")];
    return make("th", { scope: "col", class: kind, "aria-sort": direction }, button(sort, { "data-column": key }, label));
  };
  const bodyCell = (column, cell) => {
    const { key, kind, links, strips } = column;
    if (links) return make("td", {}, linksOf(column, cell));
    const text = columnText(block, column, cell);
    const strip = strips?.[cell] && make("span", { class: "strip", style: strips[cell] });
    if (key !== "name") return make("td", { class: kind, title: block.ends[key]?.[cell] }, strip, text);
    const mark = block.words[cells.invalid[cell]];
    const badge = mark && [" ", make("a", { class: "badge", href: "#warnings", title: mark }, "⚠")];
    return make("th", { scope: "row", class: "text" }, button(null, { class: "open-cell" }, text), badge);
  };
  let rows, listed;
  const fillTable = (least = 0) => {
    rows = chosen();
    listed = columns();
    const num = Math.min(Math.max(numRows, least), rows.length);
    const rowOf = (cell) => make("tr", { "data-cell": cell }, listed.map((column) => bodyCell(column, cell)));
    table.tHead.replaceChildren(make("tr", {}, listed.map(headCell)));
    table.tBodies[0].replaceChildren(...rows.slice(0, num).map(rowOf));
    byId("cells-count").textContent = `${counted(num, rows.length)} shown`;
    byId("cells-more").hidden = rows.length <= num;
  };
  tools.onchange = ({ target: { name, value } }) => {
    if (name === "tab") set(name, value);
    fillTable();
  };
  byId("cells-more").onclick = () => {
    numRows += 100;
    fillTable();
    table.tBodies[0].rows[numRows - 100].querySelector("button").focus();
  };
  byId("cells-csv").onclick = () => save("shown.csv", cellRows(block, rows, listed));
  window.onbeforeprint = () => fillTable(50);
  window.onafterprint = () => fillTable();

  // Drawer.

  const openDrawer = (indices, from) => {
    const [cell] = indices.length === 1 ? indices : [];
    set("cell", cells.id[cell]);
    title.textContent = cells.name[cell] ?? `${indices.length} ${filters.dataset.noun}s`;
    const item = (of) => make("li", {}, cellButton(block, of), ` ${facets.status.values[cells.status[of]]}; ${block.texts.main[of]}`);
    byId("drawer-body").replaceChildren(cell === undefined ? make("ul", { class: "plain" }, indices.map(item)) : cellDetails(block, cell));
    tip.textContent = "";
    from?.focus({ preventScroll: true }); // gets the focus back
    drawer.showPopover();
    title.focus();
    drawer.scrollTop = 0;
    if (from?.closest("#comparisons")) byId("drawer-comparisons")?.scrollIntoView();
  };
  drawer.onbeforetoggle = ({ newState }) => newState === "open" || set("cell");
  for (const end of listOf(".end", drawer)) end.onfocus = () => title.focus();
  document.onclick = ({ target }) => {
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
  };
  document.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === search) return;
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
    } else if (event.key === "?") byId("keys").togglePopover();
  };

  const goToView = ({ state }) => {
    const [at, values] = parseFragment(location.hash);
    section = at;
    if (view && !state && !values.length) return update(); // an anchor of the page: the view stays
    [view, ignored] = knownValues(block, values);
    update();
    if (!state) byId(section)?.scrollIntoView();
    if (view.has("cell")) openDrawer([cells.id.indexOf(view.get("cell"))]);
    else drawer.hidePopover();
  };
  document.onpointermove = ({ target, clientX: x, clientY: y }) => {
    const hit = target.closest("svg") ? document.elementsFromPoint(x, y).filter((at) => at.matches("svg [aria-label]")) : [];
    tip.textContent = [...new Set(hit.map((at) => at.ariaLabel))].join("\n\n");
    tip.style = `--x:${x}px;--y:${y}px;--end:${drawer.offsetLeft || innerWidth}px`; // 0: closed or full width
  };
  findMarks();
  for (const element of listOf("svg [data-mark]")) {
    const of = block.figures[element.closest("figure").id].find(([head]) => head === "launch");
    addLabel(element, of[+element.dataset.mark + 1]);
  }
  goToView({});
  document.documentElement.classList.add("has-script");
  document.addEventListener("toggle", ({ target }) => target.matches("details") && (findMarks(), showMarks()), true);
  window.onpopstate = goToView;
}

/** Make an element open its cells, by keyboard too. */
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
  const row = ([name, ...values]) => make("tr", {}, make("th", { scope: "row" }, name), values.map((value) => make("td", {}, value)));
  const numberRows = (group) => columns
    .filter((column) => column.group === group && texts[column.key][cell] !== null)
    .map(({ key, label, note }) => row([[label, note && make("span", { class: "note" }, note)], texts[key][cell], ends[key][cell]]));

  const times = block.times[here.times] ?? [];
  const textOf = (time) => (time === null ? "n/a" : (time / 10 ** here.decimals).toLocaleString("en-US", { minimumSignificantDigits: 4 }));
  const launchRows = (launch) => {
    const [status, cause, others, log, place] = ["status", "cause", "others", "log", "place"].map((name) => words[launches[name][launch]]);
    const file = launches.file[launch];
    const record = files.names[file] ? make("a", { href: files.addresses[file] }, files.names[file]) : "n/a";
    let time = 0; // stored: differences
    const known = times.map(([name]) => [name, launches[name][launch] === null ? null : (time += launches[name][launch])]);
    const strip = launchStrip(Object.fromEntries(known), here);
    const found = row([launches.launch[launch], [status, strip && make("span", strip)], ...known.map(([, value]) => textOf(value)), make("span", { class: "id" }, record, place)]);
    if (!cause) return found;
    const link = log && make("p", { class: "trace" }, "log: ", make("a", { href: log }, log));
    return [found, make("tr", {}, make("td", { colspan: 9 }, make("div", {}, make("p", { class: "cause" }, cause), others, link)))];
  };
  const pair = (of, place) => {
    const other = { [of]: comparisons.reference[place], [comparisons.reference[place]]: of }[cell];
    if (other === undefined) return [];
    return [[comparisons.title[place], ""], ...comparisons.lines[place], ["other cell", cellButton(block, other)]].map(row);
  };
  const settings = Object.entries(facets).map(([key, { label, values }]) => [label, key !== "status" && values[here[key]]]);
  const setting = ([label, text]) => text && make("div", {}, make("dt", {}, label), make("dd", {}, text));
  const ran = [...new Set(all.map((launch) => launches.file[launch]))].filter((file) => files.argv[file]);
  const command = (file) => make("details", {}, make("summary", {}, files.names[file]), make("pre", { class: "command", tabindex: "0" }, files.argv[file]));

  fill("status", `${facets.status.values[here.status]}; ${markText(block, cell).split("\n").pop().toLowerCase()}`);
  fill("reason", words[here.reason] ?? all.map((launch) => words[launches.cause[launch]]).find(Boolean));
  fill("warning", words[here.warning]);
  for (const group of ["results", "memory"]) fill(group, numberRows(group));
  fill("reports", columns.flatMap((column) => linksOf(column, cell)));
  fill("baseline", here.baseline === null ? null : cellButton(block, here.baseline));
  body.querySelector("#drawer-launches th:last-child").before(...times.map(([, label]) => make("th", { scope: "col" }, `${label} (${here.time_unit})`)));
  fill("axis", here.low && `axis ${textOf(here.low)} to ${textOf(here.high)} ${here.time_unit}`);
  fill("launches", all.flatMap(launchRows));
  fill("comparisons", comparisons.cell.flatMap(pair));
  fill("curve", (block.curves[here.curve] ?? []).map(row));
  fill("settings", [["Cell id", here.id], ...settings, ...block.common].map(setting));
  fill("stack", words[here.stack_facts]);
  fill("command", ran.map(command));
  fill("source", here.row);
  fill("rerun", here.command);
  return body;
}

/** Return the strip of a launch: its range, and a box from median to highest percentile. */
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
  fetch(`data:;base64,${byId("data-block").textContent}`).then(read).then(enhance);
} else {
  module.exports = { cellRows, columnText, csv, figureRows, formatFragment, knownValues, launchStrip, markText, matching, parseFragment, sorted };
}
