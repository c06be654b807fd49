"use strict";
// Filters, drawer, table of all cells and tooltips: the page is complete without them. Names and commands may contain
// anything: they become text nodes, never markup.

// The view in the URL's fragment: values of facets, search, sort (a column, "-": descending) and cell.

/** Return section and values of a fragment such as #scaling&model=resnet50. */
function parseFragment(fragment) {
  const pairs = [...new URLSearchParams(fragment.replace(/^#/, ""))];
  const section = pairs.find(([, value]) => !value)?.[0] ?? "";
  return { section, values: Object.fromEntries(pairs.filter(([, value]) => value)) };
}

function formatFragment(section, values) {
  const known = Object.entries(values).filter(([, value]) => value);
  const parts = [encodeURIComponent(section), `${new URLSearchParams(known)}`].filter(Boolean);
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

/** Return the searchable text of cells: name, causes, statuses, hosts, and settings as shown and as in a campaign file. */
function searchTexts({ cells, common, facets, words }) {
  const settings = (cell) => Object.entries(facets).map(([key, { search }]) => search[cells[key][cell]]);
  return cells.name.map((name, cell) => folded([name, words[cells.search[cell]], settings(cell), common].join(" ")));
}

/** Return a text as it is compared: 8×4 is 8x4, "4 MiB" is 4mib, "32 GPUs" is 32gpus, all-reduce is allreduce, timed out is timeout. */
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
  return [...cells].sort((a, b) => {
    if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
    return (sort === key ? 1 : -1) * (values[a] - values[b] || compare(values[a], values[b]));
  });
}

function columnText({ cells, facets, texts }, { key, kind }, cell) {
  const value = (kind === "number" ? texts : cells)[key][cell];
  return (kind === "facet" ? facets[key].values[value] : value) ?? "n/a";
}

/** Return the text on a mark of a cell. shows: key of the figure's number; without one, its row of the figure's data. */
function markText({ cells, columns, ends, figures, texts }, cell, shows, figure) {
  const known = columns.filter(({ key, is_share: isShare }) => (key === shows || isShare) && texts[key]?.[cell]);
  known.push(...columns.filter(({ key }) => key === "num_ok"));
  const lines = known.map(({ key, label }) => `${label}: ${texts[key][cell]} ${ends[key]?.[cell] ?? ""}`.trim());
  const [of, ...marks] = figures?.[figure] ?? [[]];
  const row = of.indexOf(cell);
  const ofMark = row < 0 ? [texts.main[cell]] : marks.filter((of) => of[row] && !/^(x$|launch )/.test(of[0])).map((of) => `${of[0]}: ${of[row]}`);
  if (!texts[shows]?.[cell]) lines.unshift(...ofMark);
  return [cells.name[cell], ...lines].join("\n");
}

// Files.

/** Return rows as CSV. Texts that a spreadsheet would take for formulas get an apostrophe. */
function csv(rows) {
  const field = (value) => {
    let text = String(value ?? "");
    if (/^[=+@\t\r'-]/.test(text) && isNaN(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return rows.map((row) => row.map(field).join(",") + "\n").join("");
}

/** Return cells as rows with the id first, and all digits; numbers are followed by their intervals. */
function cellRows({ cells, ends, facets }, chosen, columns) {
  const listed = columns.filter(({ key }) => key !== "id").flatMap((column) => {
    const hasEnds = chosen.some((cell) => ends[column.key]?.[cell]);
    return hasEnds ? [column, { key: column.key, kind: "ends", label: `${column.label}: interval` }] : column;
  });
  const from = { ends: (key, cell) => ends[key][cell], facet: (key, cell) => facets[key].names[cells[key][cell]] };
  const valueOf = (cell) => ({ key, kind }) => (from[kind] ? from[kind](key, cell) : cells[key][cell]);
  const headOf = ({ key, label }) => (key === "name" ? "name" : label);
  return [["cell", ...listed.map(headOf)], ...chosen.map((cell) => [cells.id[cell], ...listed.map(valueOf(cell))])];
}

/** Return the marks of a figure as rows. */
function figureRows({ cells, figures }, id) {
  const [of, ...columns] = figures[id];
  return of.map((cell, row) => [cells.id[cell] ?? cell, ...columns.map((column) => column[row])]);
}

/** Return a matrix as it is shown, with its group before each row. Minus signs become hyphens. */
function matrixRows(table) {
  const shown = [...table.rows].filter((row) => row.checkVisibility() && row.cells.length > 1);
  const groupOf = (row) => row.parentElement.querySelector("[scope=rowgroup]")?.textContent;
  return shown.map((row) => [groupOf(row), ...[...row.cells].map((cell) => cell.textContent.replace("\u2212", "-"))]);
}

/** Return a figure as an SVG file, with its title below. */
function standalone(figure) {
  const out = figure.querySelector("svg.chart").cloneNode(true);
  const { width, height } = out.viewBox.baseVal;
  const size = getComputedStyle(figure.querySelector("svg.chart text")).fontSize;
  out.append(make("text", { x: 4, y: height + 14 }, figure.querySelector(":scope > :is(h2, h3)")?.textContent ?? ""));
  const rules = [...document.styleSheets[0].cssRules].filter((rule) => rule.selectorText?.startsWith(".chart "));
  const ground = make("rect", { x: -9, y: -9, width: "110%", height: "110%", fill: "var(--ground)" });
  const text = `.chart text { font-size: ${size} }`; // the page's rule needs its width
  out.prepend(make("style", {}, [...rules.map((rule) => rule.cssText), text].join("")), ground);
  const total = height + 24;
  set(out, { viewBox: `0 0 ${width} ${total}`, width, height: total });
  const style = getComputedStyle(document.body);
  return new XMLSerializer().serializeToString(out).replace(/var\((.*?)\)/g, (_, name) => style.getPropertyValue(name));
}

async function pngOf(svg) {
  const image = make("img", { src: `data:image/svg+xml,${encodeURIComponent(svg)}` });
  await image.decode();
  const [width, height] = [3 * image.width, 3 * image.height];
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").drawImage(image, 0, 0, width, height);
  return new Promise((done) => canvas.toBlob(done));
}

const FILES = {
  svg: standalone,
  png: (figure) => pngOf(standalone(figure)),
  csv: (shown, block) => csv(shown.matches("table") ? matrixRows(shown) : figureRows(block, shown.id)),
};

function save(name, content) {
  const href = URL.createObjectURL(new Blob([content]));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

// Elements.

/** Return an element. children: elements, texts or null. */
function make(tag, attributes = {}, ...children) {
  const space = /svg|rect|style|text/.test(tag) ? "2000/svg" : "1999/xhtml";
  const element = document.createElementNS(`http://www.w3.org/${space}`, tag);
  set(element, attributes).append(...children.flat().filter((child) => child != null));
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.onclick = value;
    else if (value != null) element.setAttribute(name, value);
  }
  return element;
}

const byId = (id) => document.getElementById(id);
const listOf = (selector, root = document) => [...root.querySelectorAll(selector)];
const button = (attributes, ...children) => make("button", { type: "button", ...attributes }, ...children);
const cellButton = ({ cells }, cell) => button({ class: "open-cell", "data-cell": cell }, cells.name[cell]);
const cellsOf = (element, kind) => (element.dataset[kind] ?? "").split(" ").filter(Boolean).map(Number);
const shares = (...nums) => nums.map((num) => num.toLocaleString("en-US")).join(" of ");
const counted = (num, all) => `${shares(num, all)} ${all === 1 ? "cell" : "cells"}`;
const isNarrow = () => matchMedia("(max-width: 40rem)").matches;

async function readBlock() {
  const bytes = Uint8Array.from(atob(byId("data-block").textContent), (c) => c.charCodeAt());
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** Make filters, drawer and table work. */
function enhance(block) {
  const { cells, facets } = block;
  const [table, drawer, filters, search] = ["cells-table", "drawer", "filters", "filter-search"].map(byId);
  const steps = listOf("[data-key]");
  const contents = new Map(listOf("nav a + span").map((state) => [state, state.textContent]));
  const shown = new Set(block.columns.filter((column) => column.is_shown).map(({ key }) => key));
  const marks = [{ element: byId("cells"), cells: [...cells.id.keys()], isOff: false }];
  const groups = new Map([[byId("cells"), [...marks]]]);
  let { section, values } = parseFragment(location.hash);
  let ignored, isClosing, isOn, numRows, opener;

  // Filters.

  const remove = (...keys) => {
    for (const key of keys) delete values[key];
    ignored = [];
    update();
    search.focus();
  };
  const chip = (key) => {
    const { label, names, chips } = facets[key];
    const attributes = { class: "chip", title: `Remove: ${label}`, onclick: () => remove(key) };
    return button(attributes, `${chips[names.indexOf(values[key])]} ×`);
  };
  const showMarks = () => {
    for (const mark of marks) {
      const isOff = !mark.cells.some((cell) => isOn[cell]);
      if (isOff !== mark.isOff) mark.element.classList.toggle("is-off", (mark.isOff = isOff));
    }
    for (const line of listOf("svg [data-line]")) {
      line.classList.toggle("is-off", !cellsOf(line, "line").every((cell) => isOn[cell]));
    }
    for (const [element, inside] of groups) element.classList.toggle("is-off", inside.every((mark) => mark.isOff));
  };
  /** Show the view: filters, marks, number of cells by section, table and URL. */
  const update = () => {
    isOn = matching(block, values);
    showMarks();
    const active = Object.keys(values).filter((key) => facets[key] && values[key]);
    const isFiltered = Boolean(active.length || values.search);
    byId("filter-count").textContent = counted(isOn.filter(Boolean).length, isOn.length);
    byId("filter-ignored").textContent = ignored.length ? `Ignored in the address: ${ignored.join(", ")}` : "";
    byId("filter-chips").replaceChildren(...active.map(chip));
    byId("filter-reset").disabled = !isFiltered;
    for (const control of listOf("[name]", filters)) control.value = values[control.name] ?? "";
    for (const [state, text] of contents) {
      const inside = groups.get(byId(state.previousElementSibling.hash.slice(1)));
      const all = [...new Set(inside?.flatMap((mark) => mark.cells))];
      state.textContent = isFiltered && inside && text !== "none" ? shares(all.filter((cell) => isOn[cell]).length, all.length) : text;
    }
    numRows = isOn.length > 30 && !isNarrow() ? 25 : 8;
    fillTable();
    writeFragment();
  };
  /** Show the view in the address. Entries of the page have a state, those of its anchors none; one is the drawer's. */
  const writeFragment = (isOpened) => {
    const address = formatFragment(section, values) || location.pathname + location.search;
    if (!isOpened || history.state?.isDrawer) return history.replaceState(history.state ?? {}, "", address);
    // Back to this entry closes the drawer: the page stays where it is.
    history.scrollRestoration = "manual";
    history.pushState({ isDrawer: true }, "", address);
    history.scrollRestoration = "auto";
  };
  filters.addEventListener("input", ({ target }) => {
    values[target.name] = target.value;
    update();
  });
  filters.addEventListener("submit", (event) => {
    event.preventDefault();
    const [only, ...others] = chosen();
    if (only !== undefined && !others.length) openDrawer([only], search);
    else byId("cells").scrollIntoView();
  });
  search.onfocus = () => (block.searched ??= searchTexts(block)); // so that the first letter is as fast as the others
  byId("filter-reset").onclick = () => remove("search", ...Object.keys(facets));

  // Table.

  const chosen = () => sorted(block, block.order.filter((cell) => isOn[cell]), values.sort);
  const columns = () => block.columns.filter((column) => shown.has(column.key));
  const headCell = ({ key, kind, label, is_larger_worse: isLargerWorse }) => {
    const orders = isLargerWorse ? [`-${key}`, key] : [key, `-${key}`]; // the worst cells first
    const place = orders.indexOf(values.sort);
    const onclick = () => {
      values.sort = orders[place + 1];
      fillTable();
      writeFragment();
      table.querySelector(`[data-column="${CSS.escape(key)}"]`).focus();
    };
    const direction = place < 0 ? null : values.sort === key ? "ascending" : "descending";
    return make("th", { scope: "col", class: kind, "aria-sort": direction }, button({ "data-column": key, onclick }, label));
  };
  const bodyCell = (column, cell) => {
    const text = columnText(block, column, cell);
    if (column.links) return make("td", {}, linksOf(column, cell));
    if (column.key !== "name") return make("td", { class: column.kind, title: block.ends[column.key]?.[cell] }, column.strips && make("span", { class: "strip", style: column.strips[cell] }), text);
    const title = block.words[cells.invalid[cell]];
    const badge = title && [" ", make("a", { class: "badge", href: "#warnings", title }, "⚠")];
    return make("th", { scope: "row", class: "text" }, button({ class: "open-cell" }, text), badge);
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
  byId("cells-columns-list").onchange = ({ target }) => {
    shown[target.checked ? "add" : "delete"](target.name);
    fillTable();
  };
  byId("cells-more").onclick = () => {
    const next = numRows;
    numRows += 100;
    fillTable();
    table.tBodies[0].rows[next].querySelector("button").focus();
  };
  byId("cells-csv").onclick = () => save("shown.csv", csv(cellRows(block, chosen(), columns())));
  addEventListener("beforeprint", () => fillTable(50));
  addEventListener("afterprint", () => fillTable());

  // Drawer.

  const openDrawer = (indices, from) => {
    if (from && !drawer.contains(from)) opener = from;
    const isOpened = from && !drawer.open; // Back closes it
    const [cell] = indices.length === 1 ? indices : [];
    values.cell = cells.id[cell];
    byId("drawer-title").textContent = cells.name[cell] ?? `${indices.length} cells`;
    byId("drawer-body").replaceChildren(cell === undefined ? cellList(indices) : cellDetails(block, cell));
    drawer.show();
    byId("tip").textContent = "";
    drawer.scrollTop = 0;
    if (!steps.includes(from)) byId("drawer-title").focus();
    for (const step of steps) step.disabled = neighbor(step) === undefined;
    if (from?.closest("#comparisons")) byId("drawer-comparisons")?.scrollIntoView();
    writeFragment(isOpened);
  };
  /** Close the drawer and leave its entry, so that Back leaves the view. */
  const closeDrawer = () => {
    hideDrawer();
    if (!history.state?.isDrawer) return writeFragment();
    isClosing = true;
    history.back();
  };
  const hideDrawer = () => {
    delete values.cell;
    drawer.close();
    (opener?.isConnected ? opener : search).focus({ preventScroll: true });
    opener = null;
  };
  /** Return the cell before or after the open one in the table. */
  const neighbor = (step) => {
    const order = chosen();
    const place = order.indexOf(cells.id.indexOf(values.cell));
    return place < 0 ? undefined : order[place + Number(step.value)];
  };
  const cellList = (indices) => {
    const textOf = (cell) => ` ${facets.status.values[cells.status[cell]]}; ${block.texts.main[cell]}`;
    return make("ul", { class: "plain" }, indices.map((cell) => make("li", {}, cellButton(block, cell), textOf(cell))));
  };
  byId("drawer-close").onclick = closeDrawer;
  for (const step of steps) step.onclick = () => openDrawer([neighbor(step)], step);
  document.addEventListener("click", async (event) => {
    const { target } = event;
    if (target.matches(".copy")) {
      getSelection().selectAllChildren(target.previousElementSibling); // navigator.clipboard may be missing
      target.nextElementSibling.textContent = document.execCommand("copy") ? " Copied" : " Copy the selected text";
    }
    const element = target.closest("[data-cell]");
    const inner = target.closest("a, button, summary, input, select, label, pre");
    const kind = inner?.dataset.save;
    if (inner?.matches("#drawer a[href^='#']")) { // it would hide what the link leads to
      hideDrawer();
      writeFragment();
      if (history.state.isDrawer) {
        event.preventDefault();
        location.replace(inner.hash);
      }
    }
    const saved = kind && inner.closest("figure, table");
    if (saved) return save(`${saved.closest("[id]").id}.${kind}`, await FILES[kind](saved, block));
    const isOther = element?.contains(inner) && !inner.matches(".open-cell, [data-cell]");
    if (!element?.dataset.cell || isOther) return;
    const all = cellsOf(element, "cell");
    const on = all.filter((cell) => isOn[cell]);
    openDrawer(on.length ? on : all, element.querySelector(".open-cell") || element);
  });
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const clears = key === "Escape" && (document.querySelector(":popover-open") || (target === search && search.value));
    if (key === "Escape" && drawer.open && !clears) closeDrawer();
    else if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select")) return;
    else if (key === "/") {
      event.preventDefault(); // Firefox searches
      search.focus({ preventScroll: true });
      search.scrollIntoView({ block: "nearest" });
    } else if (key === "?") byId("keys").togglePopover();
    else if (drawer.open) steps.find((step) => step.dataset.key === key)?.click();
  });

  // The page.

  /** Add a mark, and what is around it, which is off if all inside is. */
  const addMark = (element, found) => {
    const around = "[data-filter-group], .matrix tbody, .matrix tr, table, figure, .card, svg, main > section";
    const mark = { element, cells: found, isOff: false };
    marks.push(mark);
    for (let at = element.closest(around); at; at = at.parentElement.closest(around)) {
      if (!groups.has(at)) groups.set(at, []);
      groups.get(at).push(mark);
    }
  };
  const addMarks = () => {
    for (const element of listOf("[data-cell]:not([data-cell=''], #cells-table *)")) {
      const own = cellsOf(element, "cell");
      addMark(element, [...own, ...cellsOf(element, "others")]);
      addButton(block, element, own);
    }
    for (const element of listOf("svg [data-mark]")) {
      const [, ...marks] = block.figures[element.closest("figure").id];
      const text = marks.find(([head]) => head === "launch")[Number(element.dataset.mark) + 1];
      Object.assign(element, { role: "img", ariaLabel: text });
      element.closest("svg").role = "group";
    }
  };
  const goToView = (isNew = true) => {
    if (isNew) byId(section)?.scrollIntoView();
    if (values.cell) openDrawer([cells.id.indexOf(values.cell)]);
    else if (drawer.open) hideDrawer();
  };
  [values, ignored] = knownValues(block, values);
  markSection();
  followPointer();
  addMarks();
  // Sections without marks, and the cells that they are about.
  const isKnown = (value) => value !== null;
  const hasRun = (at, cell) => block.launches.file?.slice(at, cells.first_launch[cell + 1]).some(isKnown);
  const flags = { failures: cells.id, timeline: cells.first_launch.map(hasRun) };
  for (const id in flags) {
    const found = marks[0].cells.filter((cell) => flags[id][cell]);
    if (found.length && byId(id) && !groups.has(byId(id))) addMark(byId(id), found);
  }
  update();
  document.documentElement.classList.add("has-script");
  goToView();
  addEventListener("popstate", ({ state }) => {
    history.scrollRestoration = "auto";
    if (isClosing) {
      isClosing = false;
      return writeFragment(drawer.open); // opened again in the meantime
    }
    const found = parseFragment(location.hash);
    const isAnchor = !state && !Object.keys(found.values).length; // of the page: the view stays
    section = found.section;
    if (isAnchor && drawer.open && isNarrow()) closeDrawer();
    if (!isAnchor) [values, ignored] = knownValues(block, found.values);
    update();
    if (!isAnchor) goToView(!state); // the browser scrolls after Back
  });
}

/** Show the texts of the marks under the pointer, and light their cells. */
function followPointer() {
  const tip = make("p", { id: "tip" });
  document.body.append(tip);
  let last = "";
  document.addEventListener("pointermove", ({ clientX: x, clientY: y, target }) => {
    const hit = document.elementsFromPoint(x, y).filter((at) => at.matches("svg [aria-label]"));
    tip.textContent = [...new Set(hit.map((at) => at.ariaLabel))].join("\n\n");
    // Left of the drawer. 0: it is closed, or as wide as the screen.
    tip.style.translate = `${Math.min(x, (byId("drawer").offsetLeft || innerWidth) - tip.offsetWidth - 8)}px ${Math.min(y + 16, innerHeight - tip.offsetHeight)}px`;
    const lit = new Set(cellsAt(hit.length ? hit : [target]));
    if (last === (last = `${[...lit]}`)) return;
    document.body.classList.toggle("has-lit", last);
    for (const element of listOf("[data-cell], [data-line]")) {
      element.classList.toggle("is-lit", bothOf(element).some((cell) => lit.has(cell)));
    }
  });
}

const bothOf = (element) => [...cellsOf(element, "cell"), ...cellsOf(element, "line")];

/** Return the cells of marks, lines, or a row or column of a matrix. */
function cellsAt(elements) {
  const found = elements.flatMap((element) => {
    const at = element.closest("[data-cell], [data-line], .matrix th");
    if (!at?.matches("th")) return at ?? [];
    if (at.scope === "row") return [...at.parentElement.cells];
    return [...at.closest("table").rows].flatMap((row) => row.cells[at.cellIndex] ?? []);
  });
  return found.flatMap(bothOf);
}

/** Make an element open its cells, also by keyboard; for marks of figures, rows under Data do. */
function addButton(block, element, cells) {
  const figure = element.closest("figure");
  const tip = cells.length > 1 ? `${cells.length} cells` : markText(block, cells[0], figure?.dataset.shows, figure?.id);
  const svg = element.closest("svg");
  if (svg) svg.role = "group";
  if (svg) return Object.assign(element, { role: "img", ariaLabel: tip });
  if (!element.matches("tr, li")) element.title ||= tip;
  const host = element.cells?.[0] ?? element;
  if (!host.matches("button, :has(.open-cell)")) host.prepend(button({ class: "open-cell" }, host.firstChild));
}

/** Mark the current section in the contents. */
function markSection() {
  const links = listOf('nav a[href^="#"]');
  const mark = () => {
    const current = links.findLast(({ hash }) => byId(hash.slice(1))?.getBoundingClientRect().top < 150);
    for (const link of links) link.ariaCurrent = link === current || null;
  };
  addEventListener("scroll", mark);
  mark();
}

/** Return the drawer's template filled for one cell. */
function cellDetails(block, cell) {
  const { cells, columns, comparisons, facets, files, launches, texts, words } = block;
  const body = byId("cell-details").content.cloneNode(true);
  const here = Object.fromEntries(Object.entries(cells).map(([key, values]) => [key, values[cell]]));
  const all = Array.from({ length: here.num_planned }, (_, index) => here.first_launch + index);
  const digits = { minimumSignificantDigits: 4 };
  const textOf = (time) => (time === null ? "n/a" : (time / 10 ** here.decimals).toLocaleString("en-US", digits));
  const fill = (name, ...children) => {
    const part = body.getElementById(`drawer-${name}`);
    const found = children.flat().filter((child) => child != null);
    if (found.length) (part.querySelector("[data-fill]") ?? part).append(...found);
    else part.remove();
  };
  const row = (name, ...values) => make("tr", {}, make("th", { scope: "row" }, name), values.map((value) => make("td", {}, value)));
  const lineRows = (lines) => lines.map((line) => row(...line));
  const numberRows = (group) => columns
    .filter(({ key, group: of }) => of === group && texts[key][cell] !== null)
    .map(({ key, label, note }) => row([label, note && make("span", { class: "note" }, note)], texts[key][cell], block.ends[key][cell]));

  const known = block.times[here.times] ?? [];
  const head = ([, label]) => make("th", { scope: "col" }, `${label} (${here.time_unit})`);
  const launchRows = (launch) => {
    const at = (name) => launches[name][launch];
    const [status, cause, others, log] = ["status", "cause", "others", "log"].map((name) => words[at(name)]);
    const [name, address] = [files.names, files.addresses].map((of) => of[at("file")]);
    const record = [address ? make("a", { href: address }, name) : "n/a", words[at("place")]];
    let time = 0; // stored: changes from time to time
    const times = Object.fromEntries(known.map(([name]) => [name, at(name) === null ? null : (time += at(name))]));
    const attributes = launchStrip(times, here);
    const found = row(at("launch"), [status, attributes && make("span", attributes)], ...Object.values(times).map(textOf), make("span", { class: "id" }, record));
    const link = log && make("p", { class: "trace" }, "log: ", make("a", { href: log }, log));
    const failure = make("div", {}, make("p", { class: "cause" }, cause), others, link);
    return cause ? [found, make("tr", {}, make("td", { colspan: 9 }, failure))] : found;
  };
  const pair = (of, place) => {
    const other = { [of]: comparisons.reference[place], [comparisons.reference[place]]: of }[cell];
    if (other === undefined) return [];
    return [row(comparisons.title[place], ""), ...lineRows(comparisons.lines[place]), row("other cell", cellButton(block, other))];
  };
  const settings = Object.entries(facets).map(([key, { label, values }]) => [label, key === "status" ? null : values[here[key]]]);
  const setting = ([label, text]) => text && make("div", {}, make("dt", {}, label), make("dd", {}, text));
  const ran = [...new Set(all.map((launch) => launches.file[launch]))].filter((file) => files.argv[file]);
  const command = (file) => make(
    "details", {}, make("summary", {}, files.names[file]), make("pre", { class: "command", tabindex: "0" }, files.argv[file]),
  );

  fill("status", `${facets.status.values[here.status]}; ${markText(block, cell).split("\n").pop().toLowerCase()}`);
  fill("reason", words[here.reason] ?? all.map((launch) => words[launches.cause[launch]]).find(Boolean));
  fill("warning", words[here.warning]);
  fill("results", numberRows("results"));
  fill("reports", columns.flatMap((column) => linksOf(column, cell)));
  fill("baseline", here.baseline === null ? null : cellButton(block, here.baseline));
  body.querySelector("#drawer-launches th:last-child").before(...known.map(head));
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

/** Return the strip of a launch: a line from minimum to maximum and a box from median to largest known percentile. */
function launchStrip({ min, max, ...boxes }, { low, high }) {
  const box = Object.values(boxes).findLast(Boolean);
  const place = (time) => (100 * (Math.min(time, high) - low)) / (high - low || 1);
  const [from, to] = [boxes.p50, box].map(place);
  const ends = { "--low": place(min ?? boxes.p50), "--from": from, "--to": to, "--high": place(max ?? box) };
  const style = Object.entries(ends).map(([name, at]) => `${name}:${at}%`).join(";");
  return boxes.p50 ? { class: max > high ? "strip is-beyond" : "strip", style } : null;
}

function linksOf(column, cell) {
  return (column.links?.[cell] ?? []).flatMap(([text, href]) => [make("a", { href }, text), " "]);
}

if (typeof module === "undefined") {
  if (window.DecompressionStream) readBlock().then(enhance);
} else {
  module.exports = { cellRows, columnText, csv, figureRows, formatFragment, knownValues, launchStrip, markText, matching, parseFragment, sorted };
}
