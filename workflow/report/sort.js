"use strict";
// Sorts tables of the index by a column. Cells with numbers have them in data-value; unknown values come last.

document.documentElement.classList.add("has-script");
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  for (const head of heads.filter((cell) => !cell.matches(".unsorted"))) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(table, heads, head));
    head.append(button);
  }
}

function sortBy(table, heads, head) {
  const isDescending = head.getAttribute("aria-sort") === "ascending";
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  const valueOf = (row) => {
    const cell = row.cells[heads.indexOf(head)];
    return cell.dataset.value ?? cell.textContent.trim();
  };
  const { compare } = new Intl.Collator("en", { numeric: true });
  const order = (a, b) => (isNaN(a) || isNaN(b) ? compare(a, b) : a - b);
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const values = [valueOf(a), valueOf(b)];
    if (values.includes("")) return (values[0] === "") - (values[1] === "");
    return (isDescending ? -1 : 1) * order(...values);
  });
  table.tBodies[0].append(...rows);
}
