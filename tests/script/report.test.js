"use strict";
const assert = require("node:assert/strict");
const { readFileSync } = require("node:fs");
const { test } = require("node:test");
const report = require("../../workflow/report/report.js");

const HOSTILE = '"><script>alert(1)</script>';
// Three cells: two trained and one skipped.
const block = () => ({
  columns: [
    { key: "name", label: "Cell", kind: "text", digits: 3, is_shown: true, group: "settings" },
    { key: "status", label: "Status", kind: "facet", digits: 3, is_shown: true, group: "settings" },
    { key: "model", label: "Model", kind: "facet", digits: 3, is_shown: false, group: "settings" },
    { key: "num_ok", label: "Valid launches", kind: "number", digits: 3, is_shown: true, group: "settings" },
    { key: "step_ms", label: "Step time (ms)", kind: "number", digits: 3, is_shown: true, group: "results" },
  ],
  facets: {
    status: { label: "Status", values: ["✓ ok", "– skipped", "⚠ warning"], names: ["ok", "skipped", "warning"] },
    model: { label: "Model", values: ["ResNet-18", HOSTILE], names: ["resnet18", HOSTILE] },
  },
  cells: {
    id: ["a-1", "b-2", "c-3"],
    name: ["ResNet-18 · 1×2", `${HOSTILE}, "x"`, "ResNet-18 · 1×10"],
    status: [0, 0, 1],
    model: [0, 1, 0],
    num_ok: [3, 2, 0],
    num_planned: [3, 3, 0],
    step_ms: [12.3456, 1234.56, null],
    invalid: [null, 0, null],
    reason: [null, null, 1],
  },
  launches: { cause: [null, null, null, null, 0, null], file: [0, 0, 0, 1, 1, 1] },
  files: { hosts: ["node001, node002", "node003"] },
  texts: { causes: ["NCCL error: unhandled", "needs 2 ranks"], words: ["Variation"] },
});

test("numbers have three significant figures", () => {
  const cases = [
    [null, "n/a"], [0, "0"], [0.000123, "0.000123"], [1.2, "1.20"], [12345, "12,300"], [-0.5, "−0.500"],
    [999.6, "1,000"], [1234567, "1,230,000"], [1.125, "1.12"], [1.135, "1.14"],
  ];
  for (const [value, text] of cases) assert.equal(report.three(value), text);
  assert.equal(report.three(1234.56, 4), "1,235");
});

test("numbers read as in the rest of the page", () => {
  if (!process.env.REGATTA_NUMBERS) return;
  for (const [value, text] of JSON.parse(readFileSync(process.env.REGATTA_NUMBERS, "utf8"))) {
    assert.equal(report.three(value), text, String(value));
  }
});

test("a range and an interval have different brackets", () => {
  assert.equal(report.intervalText(1, 2, "range"), "(1.00 to 2.00)");
  assert.equal(report.intervalText(1, 2, "interval"), "[1.00, 2.00]");
  assert.equal(report.intervalText(null, 2, "range"), "");
  assert.equal(report.intervalText(0.98765, 1.0123, "interval", report.ratioText), "[0.988, 1.012]");
});

test("a fragment is a section, a view, or both", () => {
  assert.deepEqual(report.parseFragment("#scaling"), { section: "scaling", values: {} });
  assert.deepEqual(report.parseFragment(""), { section: "", values: {} });
  assert.deepEqual(report.parseFragment("#scaling&model=a%26b&search=x%3Dy"), {
    section: "scaling",
    values: { model: "a&b", search: "x=y" },
  });
  assert.deepEqual(report.parseFragment("#model=%E0%A4%A").values, { model: "%E0%A4%A" }, "broken encoding");
  const odd = { model: HOSTILE, search: "1×2 & = #" };
  assert.deepEqual(report.parseFragment(report.formatFragment("cells", odd)), { section: "cells", values: odd });
  assert.equal(report.formatFragment("", {}), "");
});

test("a view survives the way into a fragment and back", () => {
  const sort = { key: "step_ms", isDescending: true };
  const view = { filters: { model: 1 }, query: "x y", sort, cell: 1, ignored: [] };
  const values = report.viewValues(block(), view);
  assert.deepEqual(values, { model: HOSTILE, search: "x y", sort: "-step_ms", cell: "b-2" });
  const { values: again } = report.parseFragment(report.formatFragment("", values));
  assert.deepEqual(report.readView(block(), again), view);
});

test("what a campaign does not have is ignored in a fragment, and listed", () => {
  const values = { model: "vgg", status: "ok", cell: "z", sort: "-nothing", constructor: "x", colour: "red" };
  assert.deepEqual(report.readView(block(), values), {
    filters: { status: 0 },
    query: "",
    sort: null,
    cell: null,
    ignored: ["model=vgg", "cell=z", "sort=-nothing", "constructor=x", "colour=red"],
  });
});

test("filters and all words of the search must match", () => {
  const on = (filters, query) => report.matching(block(), { filters, query });
  assert.deepEqual(on({}, ""), [true, true, true]);
  assert.deepEqual(on({ model: 0 }, ""), [true, false, true]);
  assert.deepEqual(on({ model: 0, status: 0 }, ""), [true, false, false]);
  assert.deepEqual(on({}, "RESNET 1×2"), [true, false, false]);
  assert.deepEqual(on({}, "c-3"), [false, false, true]);
  assert.deepEqual(on({ model: 1 }, "resnet"), [false, false, false]);
});

test("a search also finds causes of failure, reasons and hosts", () => {
  const on = (query) => report.matching(block(), { filters: {}, query });
  assert.deepEqual(on("nccl error"), [false, true, false]);
  assert.deepEqual(on("2 ranks"), [false, false, true]);
  assert.deepEqual(on("NODE003"), [false, true, false]);
  assert.deepEqual(on("node00"), [true, true, false]);
  assert.deepEqual(on("node003 resnet"), [false, false, false]);
});

test("cells with a warning are a value of the status", () => {
  const found = report.readView(block(), { status: "warning" });
  assert.deepEqual(report.matching(block(), found), [false, true, false]);
  assert.deepEqual(report.viewValues(block(), found), { status: "warning" });
});

test("unknown values come last in both directions", () => {
  const sort = (key, isDescending) => report.sorted(block(), [0, 1, 2], { key, isDescending });
  assert.deepEqual(sort("step_ms", false), [0, 1, 2]);
  assert.deepEqual(sort("step_ms", true), [1, 0, 2]);
  assert.deepEqual(sort("name", false), [1, 0, 2], "1×2 before 1×10");
  assert.deepEqual(sort("status", true), [2, 0, 1]);
  assert.deepEqual(report.sorted(block(), [2, 0], null), [2, 0]);
  assert.deepEqual(report.sorted(block(), [1, 0, 2], { key: "status", isDescending: false }), [1, 0, 2], "ties stay");
});

test("CSV has ids, all digits, names of facets, and quotes where needed", () => {
  const { columns } = block();
  assert.equal(
    report.csv(block(), [1, 2], columns),
    "cell,Cell,Status,Model,Valid launches,Step time (ms)\n" +
      'b-2,"""><script>alert(1)</script>, ""x""",ok,"""><script>alert(1)</script>",2,1234.56\n' +
      "c-3,ResNet-18 · 1×10,skipped,resnet18,0,\n",
  );
});

test("CSV marks texts that a spreadsheet would take for formulas, but not numbers", () => {
  const texts = { "=1+1": "'=1+1", "+a": "'+a", "@a": "'@a", "-a": "'-a", "'a": "''a", "a=1": "a=1" };
  for (const [text, escaped] of Object.entries(texts)) {
    const data = block();
    data.cells.id[1] = text;
    data.cells.step_ms[1] = -1.5;
    const lines = report.csv(data, [1], data.columns.filter(({ key }) => key === "step_ms")).split("\n");
    assert.equal(lines[1], `${escaped},-1.5`);
  }
});

test("a column reads as in the table", () => {
  const text = (index, cell) => report.columnText(block(), block().columns[index], cell);
  assert.deepEqual([0, 1, 2, 3, 4].map((index) => text(index, 0)), ["ResNet-18 · 1×2", "✓ ok", "ResNet-18", "3/3", "12.3"]);
  assert.deepEqual([3, 4].map((index) => text(index, 2)), ["–", "n/a"]);
  assert.equal(report.mainNumber(block(), 0), "Step time (ms): 12.3");
  assert.equal(report.mainNumber(block(), 2), "no result");
});

test("launches of a cell follow those of the cell before it", () => {
  assert.deepEqual(report.launchRanges([3, 0, 2]), [[0, 3], [3, 3], [3, 5]]);
});

test("ticks are round and lie inside", () => {
  assert.deepEqual(report.ticks(0, 1), ["0.0", "0.5", "1.0"]);
  assert.deepEqual(report.ticks(41.2, 43.9), ["42", "43"]);
  assert.deepEqual(report.ticks(0.102, 0.108), ["0.102", "0.104", "0.106", "0.108"]);
  assert.deepEqual(report.ticks(100, 900), ["200", "400", "600", "800"]);
});

test("times have the unit that suits them", () => {
  assert.deepEqual([0.5, 5, 5000].map((value) => report.timeUnit(value).unit), ["µs", "ms", "s"]);
});

test("strips share an axis from the least to the largest sample", () => {
  const nothing = { min: null, p50: null, p75: null, p90: null, p95: null, p99: null, max: null };
  const first = { min: 10, p50: 12, p75: 13, p90: null, p95: null, p99: null, max: 20 };
  const second = { min: 11, p50: 14, p75: 15, p90: 16, p95: null, p99: null, max: 18 };
  const { unit, rows } = report.strips([first, nothing, second], 100);
  assert.equal(unit, "ms");
  assert.deepEqual(rows[0], { line: [0, 100], bar: [20, 30], median: 20, isClipped: false });
  assert.equal(rows[1], null);
  assert.deepEqual(rows[2], { line: [10, 80], bar: [40, 60], median: 40, isClipped: false });
  assert.equal(report.strips([nothing], 100), null);
});

test("a far outlier is clipped and marked", () => {
  const launch = { min: 10, p50: 12, p75: 13, p90: null, p95: 14, p99: null, max: 1000 };
  const { rows, ticks } = report.strips([launch], 100);
  assert.deepEqual(rows[0], { line: [0, 100], bar: [25, 50], median: 25, isClipped: true });
  assert.deepEqual(ticks.map(({ text }) => text), ["10", "12", "14", "16", "18"]);
});

test("a launch with its median alone has neither line nor bar", () => {
  const { rows } = report.strips([{ p50: 5 }, { p50: 7 }], 100);
  assert.deepEqual(rows[0], { line: [0, 0], bar: null, median: 0, isClipped: false });
  assert.equal(rows[1].median, 100);
});
