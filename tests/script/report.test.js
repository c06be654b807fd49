"use strict";
const assert = require("node:assert/strict");
const { test } = require("node:test");
const report = require("../../workflow/report/report.js");

const HOSTILE = '"><script>alert(1)</script>';
const facet = (label, values, names) => ({ label, values, names, search: values.map((text, index) => `${text} ${names[index]}`) });
// Three cells: two trained and one skipped.
const block = () => ({
  columns: [
    { key: "name", label: "Cell", kind: "text", is_shown: true, group: "settings" },
    { key: "status", label: "Status", kind: "facet", is_shown: true, group: "settings" },
    { key: "model", label: "Model", kind: "facet", is_shown: false, group: "settings" },
    { key: "num_ok", label: "Valid launches", kind: "number", is_shown: true, group: "settings" },
    { key: "step_ms", label: "Step time (ms)", kind: "number", is_shown: true, group: "results" },
  ],
  facets: {
    status: facet("Status", ["✓ ok", "– skipped", "⚠ warning"], ["ok", "skipped", "warning"]),
    model: facet("Model", ["ResNet-18", HOSTILE], ["resnet18", HOSTILE]),
  },
  cells: {
    id: ["a-1", "b-2", "c-3"],
    name: ["ResNet-18 · 1×2", `${HOSTILE}, "x"`, "ResNet-18 · 1×10"],
    status: [0, 0, 1],
    model: [0, 1, 0],
    num_ok: [3, 2, 0],
    step_ms: [12.3456, 1234.56, null],
    invalid: [null, 0, null],
    warning: [null, 0, null],
    search: [3, 4, 2],
  },
  ends: { step_ms: ["[12.1, 12.6]", null, null] },
  texts: { num_ok: ["3/3", "2/3", "–"], step_ms: ["12.3", "1,230", null] },
  common: [["Data type", "bf16"]],
  words: ["Variation", "", "needs 2 ranks", "node001, node002", "NCCL error: unhandled node003"],
});

const view = (values) => new URLSearchParams(values);
const known = (values) => {
  const [found, ignored] = report.knownValues(block(), values);
  return [[...found], ignored];
};

test("a fragment is a section, a view, or both", () => {
  assert.deepEqual(report.parseFragment("#scaling"), ["scaling", []]);
  assert.deepEqual(report.parseFragment(""), ["", []]);
  const values = [["model", "a&b"], ["model", "c"], ["search", "x=y"]];
  assert.deepEqual(report.parseFragment("#scaling&model=a%26b&model=c&search=x%3Dy"), ["scaling", values]);
  assert.deepEqual(report.parseFragment("#model=%E0%A4%A")[1].map(([key]) => key), ["model"], "broken encoding");
  const odd = [["model", HOSTILE], ["search", "1×2 & = #"]];
  assert.deepEqual(report.parseFragment(report.formatFragment("cells", view(odd))), ["cells", odd]);
  assert.equal(report.formatFragment("", view({})), "");
});

test("the values of a view survive the way into a fragment and back", () => {
  const values = [["model", HOSTILE], ["model", "resnet18"], ["search", "x y"], ["tab", "1"], ["sort", "-step_ms"], ["cell", "b-2"]];
  const fragment = report.formatFragment("", view(values));
  assert.deepEqual(known(report.parseFragment(fragment)[1]), [values, []]);
});

test("what a campaign does not have is ignored in a fragment, and listed", () => {
  const values = { model: "vgg", status: "ok", cell: "z", sort: "-nothing", constructor: "x", colour: "red" };
  const ignored = ["model=vgg", "cell=z", "sort=-nothing", "constructor=x", "colour=red"];
  assert.deepEqual(known([...Object.entries(values), ["model", "resnet18"]]), [[["status", "ok"], ["model", "resnet18"]], ignored]);
});

test("filters and all words of the search must match", () => {
  const on = (values) => report.matching(block(), view(values));
  assert.deepEqual(on({}), [true, true, true]);
  assert.deepEqual(on({ model: "resnet18", search: "" }), [true, false, true]);
  assert.deepEqual(on({ model: "resnet18", status: "ok" }), [true, false, false]);
  assert.deepEqual(on({ search: "RESNET 1×2" }), [true, false, false]);
  assert.deepEqual(on({ search: "c-3" }), [false, false, true]);
  assert.deepEqual(on({ model: HOSTILE, search: "resnet" }), [false, false, false]);
});

test("of a facet, one of several values must match", () => {
  const on = (values) => report.matching(block(), view(values));
  assert.deepEqual(on([["model", "resnet18"], ["model", HOSTILE]]), [true, true, true]);
  assert.deepEqual(on([["model", "resnet18"], ["model", HOSTILE], ["status", "ok"]]), [true, true, false]);
  assert.deepEqual(on([["status", "skipped"], ["status", "warning"]]), [false, true, true]);
});

test("a search finds warnings and slow places", () => {
  const cells = { ...block().cells, warning: [null, 5, 6] };
  const words = [...block().words, "⚠ Slow node n05; Variation", "Outliers"];
  const on = (search) => report.matching({ ...block(), words, cells }, view({ search }));
  for (const query of ["slow", "warning", "⚠", "slow n05"]) assert.deepEqual(on(query), [false, true, false], query);
  assert.deepEqual(on("outliers"), [false, false, true], "a note is no warning");
});

test("a search also finds causes of failure, reasons and hosts", () => {
  const on = (search) => report.matching(block(), view({ search }));
  assert.deepEqual(on("nccl error"), [false, true, false]);
  assert.deepEqual(on("2 ranks"), [false, false, true]);
  assert.deepEqual(on("NODE003"), [false, true, false]);
  assert.deepEqual(on("node00"), [true, true, false]);
  assert.deepEqual(on("node003 resnet"), [false, false, false]);
});

test("a search finds whole values, however they are written", () => {
  const names = ["all-reduce · 8×4 GPUs · 4 MiB", "all-reduce · 8×48 GPUs · 64 MiB", "all-gather · 18×4 GPUs · 14 MiB"];
  const on = (search) => report.matching({ ...block(), cells: { ...block().cells, name: names } }, view({ search }));
  for (const query of ["4MiB", "4 mib", "8x4", "8×4 4MiB"]) assert.deepEqual(on(query), [true, false, false], query);
  for (const query of ["allreduce", "all_reduce", "All-Reduce"]) assert.deepEqual(on(query), [true, true, false], query);
  assert.deepEqual(on("allreduce 64MiB"), [false, true, false]);
  assert.deepEqual(on("4mi"), [true, false, false], "while it is typed");
  assert.deepEqual(on("8x"), [true, true, false]);
  assert.deepEqual(on("node00"), [true, true, false]);
  assert.deepEqual(on("n00"), [false, false, false]);
  assert.deepEqual(on("(8*"), [false, false, false], "no pattern");
});

test("a search finds a node and a status, not others that begin alike", () => {
  const words = ["node n07: timeout of 600 s", "n070", "n7"];
  const cells = { ...block().cells, search: [0, 1, 2], warning: [null, null, null] };
  const on = (search) => report.matching({ ...block(), words, cells }, view({ search }));
  assert.deepEqual(on("n07"), [true, false, false]);
  assert.deepEqual(on("timeout"), [true, false, false]);
  assert.deepEqual(on("N07 timeout"), [true, false, false]);
});

test("a search finds settings: as in the campaign file, and those that all cells share", () => {
  const on = (search) => report.matching(block(), view({ search }));
  assert.deepEqual(on("skipped"), [false, false, true]);
  assert.deepEqual(on("resnet18"), [true, false, true]);
  assert.deepEqual(on("bf16"), [true, true, true]);
  assert.deepEqual(on("fp16"), [false, false, false]);
});

test("cells with a warning are a value of the status", () => {
  assert.deepEqual(report.matching(block(), view({ status: "warning" })), [false, true, false]);
  assert.deepEqual(known([["status", "warning"]]), [[["status", "warning"]], []]);
});

test("a search may have commas and numbers of ranks", () => {
  const sized = (text) => ({ ...block(), common: [["Shape", text]] });
  assert.deepEqual(report.matching(sized("8×4 32 GPUs"), view({ search: "32 GPUs, resnet18" })), [true, false, true]);
  assert.deepEqual(report.matching(sized("1×4 4 GPUs 32 KiB"), view({ search: "32 GPUs" })), [false, false, false]);
});

test("unknown values come last in both directions", () => {
  const sort = (order) => report.sorted(block(), [0, 1, 2], order);
  assert.deepEqual(sort("step_ms"), [0, 1, 2]);
  assert.deepEqual(sort("-step_ms"), [1, 0, 2]);
  assert.deepEqual(sort("name"), [1, 0, 2], "1×2 before 1×10");
  assert.deepEqual(sort("-status"), [2, 0, 1]);
  assert.deepEqual(report.sorted(block(), [2, 0], undefined), [2, 0]);
  assert.deepEqual(report.sorted(block(), [1, 0, 2], "status"), [1, 0, 2], "ties stay");
});

test("CSV has ids, all digits, names of facets, and quotes where needed", () => {
  const { columns } = block();
  assert.equal(
    report.csv(report.cellRows(block(), [1, 2], columns)),
    "cell,name,Status,Model,Valid launches,Step time (ms)\n" +
      'b-2,"""><script>alert(1)</script>, ""x""",ok,"""><script>alert(1)</script>",2,1234.56\n' +
      "c-3,ResNet-18 · 1×10,skipped,resnet18,0,\n",
  );
});

test("CSV has the intervals that its cells have", () => {
  const { columns } = block();
  assert.equal(
    report.csv(report.cellRows(block(), [0, 2], columns.slice(3))),
    'cell,Valid launches,Step time (ms),Step time (ms): interval\na-1,3,12.3456,"[12.1, 12.6]"\nc-3,0,,\n',
  );
});

test("CSV marks texts that a spreadsheet would take for formulas, but not numbers", () => {
  const texts = { "=1+1": "'=1+1", "+a": "'+a", "@a": "'@a", "-a": "'-a", "'a": "''a", "a=1": "a=1" };
  for (const [text, escaped] of Object.entries(texts)) assert.equal(report.csv([[text, -1.5, "+2"]]), `${escaped},-1.5,+2\n`);
});

test("a column reads as in the table", () => {
  const text = (index, cell) => report.columnText(block(), block().columns[index], cell);
  assert.deepEqual([0, 1, 2, 3, 4].map((index) => text(index, 0)), ["ResNet-18 · 1×2", "✓ ok", "ResNet-18", "3/3", "12.3"]);
  assert.deepEqual([3, 4].map((index) => text(index, 2)), ["–", "n/a"]);
});

test("the text on a mark has the number that its figure shows, its interval, launches, and the share of the ideal", () => {
  const given = block();
  given.columns.push(
    { key: "busbw", label: "Bus bandwidth (GB/s)" },
    { key: "peak_percent", label: "Share of peak (%)", is_share: true },
  );
  given.texts = { ...given.texts, busbw: ["90", null, null], peak_percent: ["72", null, null], main: ["", "Step time (ms): 1,230", ""] };
  given.ends = { busbw: ["[88, 92]", null, null], peak_percent: [null, null, null] };
  assert.deepEqual(report.markText(given, 0, "busbw").split("\n"), [
    "ResNet-18 · 1×2", "Bus bandwidth (GB/s): 90 [88, 92]", "Share of peak (%): 72", "Valid launches: 3/3",
  ]);
  const other = [`${HOSTILE}, "x"`, "Step time (ms): 1,230", "Valid launches: 2/3"];
  assert.deepEqual(report.markText(given, 1, "busbw").split("\n"), other, "without the number: the first result");
  given.figures = { changes: [["cell", 1], ["series", "slower"], ["x", "0"], ["Change (%)", "8.2"], ["low", ""], ["launch 1", "1.1"]] };
  const ofMark = [other[0], "series: slower", "Change (%): 8.2", "Valid launches: 2/3"];
  assert.deepEqual(report.markText(given, 1, undefined, "changes").split("\n"), ofMark, "its row of the figure's data");
});

test("the CSV of a figure has the ids of its cells and its other fields as they are", () => {
  const figures = { "efficiency-1": [["cell", 2, ""], ["series", "a, b", "ideal"], ["mark", "1.5", "100"]] };
  const rows = report.figureRows({ ...block(), figures }, "efficiency-1");
  assert.equal(report.csv(rows), 'cell,series,mark\nc-3,"a, b",1.5\n,ideal,100\n');
});

test("the strip of a launch has its range and a box, on the axis of its cell", () => {
  const axis = { low: 10, high: 20 };
  const strip = (times, of = axis) => report.launchStrip(times, of);
  const styleOf = (...ends) => ["low", "from", "to", "high"].map((name, at) => `--${name}:${ends[at]}%`).join(";");
  const times = { window: 9, min: 10, p50: 12, p75: 13, p90: null, max: 20 };
  assert.deepEqual(strip(times), { class: "strip", style: styleOf(0, 20, 30, 100) });
  assert.deepEqual(strip({ p50: 14, max: 30 }), { class: "strip is-beyond", style: styleOf(40, 40, 40, 100) });
  assert.deepEqual(strip({ p50: 10 }, { low: 10, high: 10 }), { class: "strip", style: styleOf(0, 0, 0, 0) });
  assert.equal(strip({ min: null, p50: null, max: null }), null);
});
