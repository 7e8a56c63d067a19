// Tables are sorted by the column whose header is pressed, and the other way when pressed again.
for (const table of document.querySelectorAll("table")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [row.cells[column], row]);
      rows.sort(([a], [b]) => (ascending ? 1 : -1) * compare(a, b));
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      body.append(...rows.map(([, row]) => row));
    });
  });
}

function compare(a, b) {
  const [left, right] = [Number(a.dataset.value), Number(b.dataset.value)];
  if (Number.isNaN(left) && Number.isNaN(right)) {
    return a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  }
  if (Number.isNaN(left)) return 1;
  if (Number.isNaN(right)) return -1;
  return left < right ? -1 : Number(left > right);
}
