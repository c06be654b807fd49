"use strict";
// Filters, drawer, table of all cells and tooltips. The page is complete without this script. Numbers are texts of the
// data block. Names and commands may contain anything: they become text nodes, never markup.

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

/** Return the view of a fragment's values, and what this campaign does not have. */
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
  const words = folded(view.query).split(/\s+/).filter(Boolean).map(wordPattern);
  const texts = words.length && (block.searched ??= searchTexts(block));
  const wanted = Object.entries(view.filters);
  return cells.id.map((_, cell) => wanted.every(passes(cell)) && words.every((word) => word.test(texts[cell])));
}

/** Return the searchable text of cells: name, id, causes, hosts, and settings as shown and as in a campaign file. */
function searchTexts({ cells, common, facets, words }) {
  const settings = (cell) => Object.entries(facets).flatMap(([key, of]) => [of.values, of.names].map((list) => list[cells[key][cell]]));
  return cells.id.map((id, cell) => folded([id, cells.name[cell], words[cells.search[cell]], settings(cell), common].join(" ")));
}

/** Return a text as it is compared: 8×4 is 8x4, "4 MiB" is 4mib, all-reduce and all_reduce are allreduce. */
function folded(text) {
  return text.toLowerCase().replaceAll("×", "x").replace(/(\d) (?=[kmgt]?i?b\b)|([a-z])[-_](?=[a-z])/g, "$1$2");
}

/** Return the pattern of a searched word. One with a number is a whole value: 4MiB is not in 64 MiB, n1 not in n10. */
function wordPattern(word) {
  const escaped = word.replace(/[^\w]/g, "\\$&");
  return new RegExp((/^\d/.test(word) ? "(?<![a-z\\d.])" : "") + escaped + (/^\D?\d/.test(word) ? "(?!(?<=\\d)\\d)" : ""));
}

/** Return cells sorted by a column; unknown values come last in both directions. */
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

const SHARES = ["efficiency_percent", "peak_percent", "mfu_percent"]; // of ideal or peak

/** Return what a mark of a cell says in a figure. */
function markText({ cells, columns, ends, texts }, cell, shows) {
  const known = columns.filter(({ key }) => [shows, ...SHARES].includes(key) && texts[key]?.[cell]);
  const lines = known.map(({ key, label }) => `${label}: ${texts[key][cell]} ${ends[key][cell] ?? ""}`.trim());
  if (!texts[shows]?.[cell]) lines.unshift(texts.main[cell]);
  return [cells.name[cell], ...lines, `valid launches: ${texts.num_ok[cell]}`].join("\n");
}

/** Return an element. children: elements, texts or null. */
function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "path", "rect", "style", "text"].includes(tag);
  const element = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  set(element, attributes).append(...children.flat().filter((child) => child != null));
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value != null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

const byId = (id) => document.getElementById(id);
const isNarrow = () => matchMedia("(max-width: 40rem)").matches;

async function readBlock() {
  const bytes = Uint8Array.from(atob(byId("data-block").textContent.trim()), (c) => c.charCodeAt());
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const FOLDED = "#cells-table, details:not([open]) > :not(summary, [data-filter-group] *)";
const cellsOf = (element, kind) => (element.dataset[kind] ?? "").split(" ").filter(Boolean).map(Number);
const allCellsOf = (element) => [...cellsOf(element, "cell"), ...cellsOf(element, "others")];
const shares = (num, all) => `${num.toLocaleString("en-US")} of ${all.toLocaleString("en-US")}`;
const counted = (num, all) => `${shares(num, all)} ${all === 1 ? "cell" : "cells"}`;

function save(name, content) {
  const url = URL.createObjectURL(new Blob([content]));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Return a figure with title and legend as an SVG file. */
function standalone(figure) {
  const drawn = figure.querySelector("svg.chart");
  const [out, at, { width, height }] = [drawn.cloneNode(true), drawn.getBoundingClientRect(), drawn.viewBox.baseVal];
  let [top, bottom] = [0, height];
  for (const element of figure.querySelectorAll(":scope > :is(h2, h3), .legend li")) {
    const box = element.getBoundingClientRect();
    const [x, y, end] = [box.left - at.left, box.top - at.top, box.bottom - at.top].map((place) => (place * width) / at.width);
    const swatch = element.querySelector("svg")?.cloneNode(true);
    if (swatch) set(swatch, { x, y: y + 2 });
    out.append(swatch ?? "", make("text", { x: x + (swatch ? 30 : 0), y: end - 4 }, element.textContent));
    [top, bottom] = [Math.min(top, y), Math.max(bottom, end)];
  }
  const rules = [...document.styleSheets[0].cssRules].filter((rule) => rule.selectorText?.startsWith(".chart "));
  const ground = make("rect", { x: -9, y: top - 9, width: width + 18, height: bottom - top + 18, fill: "var(--ground)" });
  out.prepend(make("style", {}, rules.map((rule) => rule.cssText).join("")), ground);
  set(out, { viewBox: `0 ${top} ${width} ${bottom - top}`, width, height: bottom - top });
  const style = getComputedStyle(document.body);
  return new XMLSerializer().serializeToString(out).replace(/var\((.*?)\)/g, (_, name) => style.getPropertyValue(name));
}

async function pngOf(svg) {
  const image = make("img", { src: `data:image/svg+xml,${encodeURIComponent(svg)}` });
  await image.decode();
  const size = [3 * image.width, 3 * image.height];
  const canvas = make("canvas", { width: size[0], height: size[1] });
  canvas.getContext("2d").drawImage(image, 0, 0, ...size);
  return new Promise((done) => canvas.toBlob(done));
}

function figureCsv({ cells, figures }, id) {
  const [of, ...columns] = figures[id];
  return of.map((cell, row) => [cells.id[cell] ?? cell, ...columns.map((column) => column[row])] + "\n").join("");
}

function addMenus(block, root) {
  for (const figure of root.querySelectorAll("figure:not(:has(> .save))")) {
    const files = { svg: standalone, png: (of) => pngOf(standalone(of)), csv: (of) => figureCsv(block, of.id) };
    const button = ([kind, file]) => {
      const onclick = async () => save(`${figure.id}.${kind}`, await file(figure));
      return make("button", { type: "button", onclick }, kind);
    };
    figure.append(make("details", { class: "save" }, make("summary", {}, "Save"), Object.entries(files).map(button)));
  }
}

/** Add filters, drawer and table to the page. */
function enhance(block) {
  const { cells } = block;
  const table = byId("cells-table");
  const drawer = byId("drawer");
  const steps = [...drawer.querySelectorAll("[data-key]")];
  const marks = [];
  const groups = new Map();
  const sections = sectionsOf(block);
  const filters = byId("filters");
  const selects = [...filters.querySelectorAll("select")];
  const shown = new Set(block.columns.filter((column) => column.is_shown).map((column) => column.key));
  let fragment = parseFragment(location.hash);
  let view = readView(block, fragment.values);
  let isOn = [];
  let numRows = 0;
  let opener = null;

  const setUpFilters = () => {
    filters.addEventListener("input", ({ target }) => {
      if (target.type === "search") view.query = target.value;
      else if (target.value === "") delete view.filters[target.name];
      else view.filters[target.name] = Number(target.value);
      update();
    });
    byId("filter-reset").addEventListener("click", () => change({ filters: {}, query: "", ignored: [] }));
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.hidden = false;
  };

  const change = (changes) => {
    view = { ...view, ...changes };
    update();
    byId("filter-search").focus();
  };

  /** Return a button for each active filter, which removes it. */
  const chips = () => Object.entries(view.filters).map(([key, index]) => {
    const { label, values } = block.facets[key];
    const { [key]: _, ...filters } = view.filters;
    const text = /^[\d.]+$/.test(values[index]) ? `${label}: ${values[index]}` : values[index];
    return make("button", { type: "button", class: "chip", title: `Remove: ${label}`, onclick: () => change({ filters }) }, `${text} ×`);
  });

  const showMarks = () => {
    for (const mark of marks) {
      const isOff = !mark.cells.some((cell) => isOn[cell]);
      if (isOff !== mark.isOff) mark.element.classList.toggle("is-off", (mark.isOff = isOff));
    }
    for (const line of document.querySelectorAll("svg [data-line]")) {
      line.classList.toggle("is-off", !cellsOf(line, "line").every((cell) => isOn[cell]));
    }
    for (const [element, inside] of groups) element.classList.toggle("is-off", inside.every((mark) => mark.isOff));
  };

  /** Have anchors scroll to below the sticky bar. */
  const keepClear = () => (document.documentElement.style.scrollPaddingTop = `${filters.offsetHeight + 8}px`);

  /** Show what the view says: filters, marks, table and URL. */
  const update = () => {
    isOn = matching(block, view);
    showMarks();
    const num = isOn.filter(Boolean).length;
    byId("filter-count").textContent = counted(num, isOn.length) + (num ? "" : ": no cell matches");
    byId("filter-ignored").textContent = view.ignored.length ? `Ignored in the address: ${view.ignored.join(", ")}` : "";
    for (const select of selects) select.value = view.filters[select.name] ?? "";
    byId("filter-search").value = view.query;
    byId("filter-chips").replaceChildren(...chips());
    const isFiltered = Object.keys(view.filters).length > 0 || view.query !== "";
    byId("filter-scope").hidden = !isFiltered;
    byId("filter-reset").disabled = !isFiltered && !view.ignored.length;
    showSections(sections, isOn, isFiltered);
    numRows = isOn.length > 30 && !isNarrow() ? 25 : 8;
    fillTable();
    writeFragment();
    keepClear();
  };

  /** Show the view in the address. The page's own entries have a state, those of its anchors none. */
  const writeFragment = (state = history.state ?? {}, method = "replaceState") => {
    const hash = formatFragment(fragment.section, viewValues(block, view));
    if (hash !== location.hash || state !== history.state) history[method](state, "", hash || location.pathname + location.search);
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
    const parts = column.links ? linksOf(column, cell) : [strip(column.strips?.[cell]), text];
    if (column.key !== "name") return make("td", { class: column.kind }, parts);
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
    byId("cells-count").textContent = rows.length ? `${counted(num, rows.length)} shown` : "No cell matches the filters.";
    byId("cells-more").hidden = rows.length <= num;
  };

  const setUpTable = () => {
    byId("cells-columns-list").addEventListener("change", ({ target }) => {
      shown[target.checked ? "add" : "delete"](target.name);
      fillTable();
    });
    byId("cells-more").addEventListener("click", () => {
      const next = numRows;
      numRows += 100;
      fillTable();
      table.tBodies[0].rows[next].querySelector("button").focus();
    });
    byId("cells-csv").addEventListener("click", () => {
      save("cells.csv", csv(block, chosen(), columns()));
    });
    addEventListener("beforeprint", () => fillTable(50));
    addEventListener("afterprint", () => fillTable());
    byId("cells-note").hidden = true;
    byId("cells-tools").hidden = false;
  };

  const openDrawer = (indices, from) => {
    if (from && !drawer.contains(from)) opener = from;
    const isNew = from && !drawer.open; // Back closes it
    view.cell = indices.length === 1 ? indices[0] : null;
    byId("drawer-title").textContent = view.cell === null ? `${indices.length} cells` : cells.name[view.cell];
    byId("drawer-body").replaceChildren(view.cell === null ? cellList(indices) : cellDetails(block, view.cell, openDrawer));
    if (!drawer.open) drawer.show();
    drawer.scrollTop = 0;
    if (!steps.includes(from)) byId("drawer-title").focus();
    for (const step of steps) step.disabled = neighbor(step) === undefined;
    if (from?.closest("#comparisons")) byId("drawer-comparisons")?.scrollIntoView();
    writeFragment(isNew ? { isOpen: true } : undefined, isNew && !history.state?.isSpare ? "pushState" : "replaceState");
  };
  const closeDrawer = () => {
    view.cell = null;
    writeFragment({ isSpare: Boolean(history.state?.isOpen) }); // else each opened cell would take one more Back
    hideDrawer();
  };
  const hideDrawer = () => {
    drawer.close();
    (opener?.isConnected ? opener : byId("filter-search")).focus({ preventScroll: true });
    opener = null;
  };
  /** Return the cell before or after the open one in the table's order. */
  const neighbor = (step) => {
    const order = chosen();
    return order.includes(view.cell) ? order[order.indexOf(view.cell) + Number(step.value)] : undefined;
  };
  const cellList = (indices) => {
    const textOf = (cell) => ` ${block.facets.status.values[cells.status[cell]]}; ${block.texts.main[cell]}`;
    const itemOf = (cell) => make("li", {}, cellButton(block, cell, openDrawer), textOf(cell));
    return make("ul", { class: "plain" }, indices.map(itemOf));
  };
  const setUpDrawer = () => {
    byId("drawer-close").addEventListener("click", closeDrawer);
    for (const step of steps) step.addEventListener("click", () => openDrawer([neighbor(step)], step));
    document.addEventListener("click", ({ target }) => {
      const element = target.closest("[data-cell]");
      const inner = target.closest("a, button, summary, input, select, label, pre");
      const isOther = element?.contains(inner) && !inner.matches(".open-cell, [data-cell]");
      if (!element?.dataset.cell || isOther) return;
      const all = cellsOf(element, "cell");
      const on = all.filter((cell) => isOn[cell]);
      openDrawer(on.length ? on : all, element.querySelector(".open-cell") || element);
    });
  };
  const setUpKeys = () => {
    document.addEventListener("keydown", (event) => {
      const { key, target } = event;
      if (key === "Escape" && drawer.open && !document.querySelector(":popover-open")) closeDrawer();
      else if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select")) return;
      else if (key === "/") {
        event.preventDefault(); // Firefox would search
        byId("filter-search").focus();
      } else if (key === "?") byId("keys").togglePopover();
      else if (drawer.open) steps.find((step) => step.dataset.key === key)?.click();
    });
  };

  /** Show the texts of the marks under the pointer, and light their cells. */
  const setUpPointer = () => {
    const tip = make("p", { id: "tip" });
    document.body.append(tip);
    let last = "";
    document.addEventListener("pointermove", ({ clientX: x, clientY: y, target }) => {
      const hit = document.elementsFromPoint(x, y).filter((at) => at.matches("svg [aria-label]"));
      const texts = [...new Set(hit.map((at) => at.ariaLabel))];
      tip.textContent = texts.join("\n\n");
      tip.style.translate = `${Math.min(x, innerWidth - tip.offsetWidth - 8)}px ${Math.min(y + 16, innerHeight - tip.offsetHeight)}px`;
      const lit = new Set(cellsAt(hit.length ? hit : [target]));
      if (`${[...lit]}` === last) return;
      last = `${[...lit]}`;
      document.body.classList.toggle("has-lit", lit.size > 0);
      for (const element of document.querySelectorAll("[data-cell], [data-line]")) {
        element.classList.toggle("is-lit", bothOf(element).some((cell) => lit.has(cell)));
      }
    });
  };

  const goToView = (isNew = true) => {
    if (isNew) byId(fragment.section)?.scrollIntoView();
    if (view.cell !== null) openDrawer([view.cell]);
    else if (drawer.open) hideDrawer();
  };

  setUpFilters();
  setUpTable();
  setUpDrawer();
  setUpKeys();
  setUpPointer();
  markSection();
  addMenus(block, document);
  addMarks(block, document, marks, groups);
  update();
  document.addEventListener("toggle", ({ target }) => {
    for (const child of target.querySelectorAll(":scope > noscript")) child.outerHTML = child.textContent; // inert until now
    addMarks(block, target, marks, groups);
    addMenus(block, target);
    showMarks();
  }, true);
  new ResizeObserver(keepClear).observe(filters);
  document.documentElement.classList.add("has-script");
  goToView();
  addEventListener("popstate", ({ state }) => {
    const found = parseFragment(location.hash);
    const isPlain = !state && !Object.keys(found.values).length; // an anchor of the page: the view stays
    fragment = isPlain ? { ...fragment, section: found.section } : found;
    if (isPlain && drawer.open && isNarrow()) closeDrawer();
    if (!isPlain) view = readView(block, found.values);
    update();
    if (!isPlain) goToView(!state); // the browser scrolls after Back
  });
}

/** Add unfolded elements of cells, and what is around them. */
function addMarks(block, root, marks, groups) {
  const kinds = "[data-filter-group], .matrix tbody, .matrix tr, table, figure, .card, svg";
  for (const element of root.querySelectorAll("[data-cell]")) {
    const cells = cellsOf(element, "cell");
    if (element.isMark || element.closest(FOLDED) || !cells.length) continue;
    element.isMark = true;
    const mark = { element, cells: allCellsOf(element), isOff: false };
    marks.push(mark);
    addButton(block, element, cells);
    for (let at = element.closest(kinds); at; at = at.parentElement.closest(kinds)) {
      if (!groups.has(at)) groups.set(at, []);
      groups.get(at).push(mark);
    }
  }
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
  const isOne = cells.length === 1;
  const name = isOne ? block.cells.name[cells[0]] : `${cells.length} cells`;
  const tip = isOne ? markText(block, cells[0], element.closest("figure")?.dataset.shows) : name;
  const svg = element.closest("svg");
  if (svg) svg.role = "group";
  if (svg) return Object.assign(element, { role: "img", ariaLabel: tip });
  if (!element.matches("tr, li")) element.title = tip;
  if (element.matches("a, button")) return;
  const host = element.cells?.[0] ?? element;
  if (host.querySelector("a, button, details, summary, p, ul, pre, br")) {
    const label = isOne ? `Details of ${name}` : null;
    const more = { type: "button", class: "open-cell more", "aria-label": label };
    host.append(" ", make("button", more, isOne ? "Details" : name));
  } else host.append(make("button", { type: "button", class: "open-cell" }, ...host.childNodes));
}

/** Return the sections about cells that are parsed, with their cells and their place in the contents. */
function sectionsOf({ cells }) {
  return [...document.querySelectorAll("main > section:not(:has(noscript))")].map((element) => {
    const own = element.id === "cells" ? cells.id.keys() : [...element.querySelectorAll("[data-cell]")].flatMap(allCellsOf);
    const state = document.querySelector(`nav a[href="#${element.id}"] + span`);
    return { element, cells: [...new Set(own)], state, text: state.textContent };
  }).filter((section) => section.cells.length);
}

/** Collapse sections without a matching cell, and count the matching ones in the contents. */
function showSections(sections, isOn, isFiltered) {
  for (const { element, cells, state, text } of sections) {
    const num = cells.filter((cell) => isOn[cell]).length;
    element.classList.toggle("is-empty", !num);
    state.textContent = isFiltered ? shares(num, cells.length) : text;
  }
}

/** Mark the current section in the contents. */
function markSection() {
  const visible = new Set();
  const links = [...document.querySelectorAll('nav a[href^="#"]')];
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) visible[isIntersecting ? "add" : "delete"](target.id);
    const current = links.find((link) => visible.has(link.hash.slice(1)));
    for (const link of links) link.ariaCurrent = link === current ? "true" : null;
  }, { rootMargin: "-20% 0px -60% 0px" });
  for (const link of links) if (byId(link.hash.slice(1))) observer.observe(byId(link.hash.slice(1)));
}

/** Return the drawer's template filled for one cell. open: opens other cells. */
function cellDetails(block, cell, open) {
  const { cells, columns, comparisons, facets, files, launches, texts, words } = block;
  const body = byId("cell-details").content.cloneNode(true);
  const all = Array.from({ length: cells.num_planned[cell] }, (_, index) => cells.first_launch[cell] + index);
  const fill = (name, selector, ...children) => {
    const part = body.getElementById(`drawer-${name}`);
    const found = children.flat().filter((child) => child != null);
    if (found.length) (selector ? part.querySelector(selector) : part).append(...found);
    else part.remove();
  };
  const row = (name, ...values) => {
    const cellOf = (value) => make("td", { class: typeof value === "string" ? "number" : "text" }, value);
    return make("tr", {}, make("th", { scope: "row" }, name), values.filter((value) => value != null).map(cellOf));
  };
  const lineRows = (lines) => lines.map(([name, text]) => row(name, make("span", {}, text)));
  const numberRows = (group) => columns
    .filter((column) => column.group === group && texts[column.key][cell] !== null)
    .map(({ key, label, note }) => row([label, note && make("span", { class: "note" }, note)], texts[key][cell], block.ends[key][cell]));

  const known = block.times.filter(([name]) => all.some((launch) => launches[name]?.[launch]));
  const launchRow = (launch) => {
    const [file, hosts] = [files.names, files.hosts].map((of) => of[launches.file[launch]]);
    const link = file && [make("a", { href: address(`launches/${file}.jsonl`) }, `${file}.jsonl`), ` line ${launches.line[launch]}`];
    return row(
      String(launches.launch[launch]), make("span", {}, words[launches.status[launch]], strip(launches.strip[launch])),
      ...known.map(([name]) => launches[name][launch] ?? "n/a"),
      make("span", { class: "id" }, link ?? "n/a", hosts && ` on ${hosts}`),
    );
  };
  const headOf = ([, label]) => make("th", { scope: "col" }, `${label} (${cells.time_unit[cell]})`);
  const failure = (launch) => {
    const log = words[launches.log[launch]];
    const others = words[launches.others[launch]];
    return make(
      "li", {}, `launch ${launches.launch[launch]}: ${words[launches.status[launch]]}`,
      make("p", { class: "cause" }, words[launches.cause[launch]]),
      others && make("p", {}, others),
      log && make("p", { class: "trace" }, "log: ", make("a", { href: address(log) }, log)),
    );
  };
  const pair = (other, place) => {
    const reference = comparisons.reference[place];
    if (![other, reference].includes(cell)) return [];
    const role = other === cell ? "reference" : "compared with this reference";
    const title = make("tr", {}, make("th", { colspan: 2, scope: "rowgroup" }, comparisons.title[place]));
    return [title, lineRows(comparisons.lines[place]), row(role, cellButton(block, other === cell ? reference : other, open))].flat();
  };
  const varied = Object.entries(facets)
    .filter(([key]) => key !== "status" && cells[key][cell] !== null)
    .map(([key, { label, values }]) => [label, values[cells[key][cell]]]);
  const setting = ([label, text]) => make("div", {}, make("dt", {}, label), make("dd", {}, text));
  const ran = [...new Set(all.map((launch) => launches.file[launch]))].filter((file) => files.argv[file]);
  const command = (file, index) => make(
    "details", { open: index === 0 }, make("summary", {}, files.names[file]),
    make("pre", { class: "command", tabindex: "0" }, files.argv[file]),
  );

  fill("status", null, facets.status.values[cells.status[cell]], all.length ? `; valid launches: ${texts.num_ok[cell]}` : null);
  fill("reason", null, words[cells.reason[cell]]);
  fill("warning", "a", words[cells.warning[cell]]);
  fill("results", "tbody", numberRows("results"));
  fill("reports", null, columns.flatMap((column) => (column.links ? linksOf(column, cell) : [])));
  fill("baseline", null, cells.baseline[cell] === null ? null : cellButton(block, cells.baseline[cell], open));
  const [, status, record] = body.querySelectorAll("#drawer-launches th");
  record.before(...known.map(headOf));
  if (cells.axis[cell]) status.append(`, ${cells.axis[cell]}`);
  fill("launches", "tbody", all.map(launchRow));
  fill("failures", "ul", all.filter((launch) => launches.cause[launch] !== null).map(failure));
  fill("memory", "tbody", numberRows("memory"));
  fill("comparisons", "tbody", comparisons.cell.flatMap(pair));
  fill("curve", "tbody", lineRows(block.curves[cells.curve[cell]] ?? []));
  fill("settings", "dl", [["Cell id", cells.id[cell]], ...varied, ...block.common].map(setting));
  fill("command", null, ran.map(command));
  if (ran.length) body.querySelector("#drawer-command p").append(words[cells.stack_facts[cell]]);
  fill("source", null, all.length ? cells.row[cell] : null);
  const copy = body.querySelector("#drawer-rerun button");
  copy.addEventListener("click", () => {
    getSelection().selectAllChildren(copy.previousElementSibling); // navigator.clipboard may be missing
    copy.nextElementSibling.textContent = document.execCommand("copy") ? copy.dataset.copied : copy.dataset.selected;
  });
  fill("rerun", "pre", cells.command[cell]);
  return body;
}

/** Return a path of the data block as a drawing: launches of a cell, or the interval of a pair. */
function strip(path) {
  const box = { class: "strip", viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" };
  return path && make("svg", box, make("path", { d: path }));
}

function linksOf(column, cell) {
  return column.links[cell].flatMap(([text, href]) => [make("a", { href }, text), " "]);
}

function cellButton(block, cell, open) {
  return make("button", { type: "button", class: "open-cell", onclick: () => open([cell]) }, block.cells.name[cell]);
}

/** Return a path of the results folder as an address. */
function address(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

if (typeof module === "undefined") {
  if (byId("data-block") && typeof DecompressionStream !== "undefined") readBlock().then(enhance);
} else {
  module.exports = { columnText, csv, figureCsv, formatFragment, markText, matching, parseFragment, readView, sorted, viewValues };
}
