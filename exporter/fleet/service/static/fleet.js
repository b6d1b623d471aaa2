// Comfort only: every page works without it. Tables that are whole on the page sort and filter without a request.
"use strict";

for (const form of document.querySelectorAll("form.window")) {
  form.querySelector("button").hidden = true;
  form.querySelector("select").addEventListener("change", () => form.submit());
}

function order(cell) {
  const number = cell.dataset.value;
  return number === undefined ? cell.textContent.trim() : Number(number);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b, "en", { numeric: true });
}

for (const table of document.querySelectorAll("table[data-whole]")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.querySelector("a")?.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => compare(order(a.cells[column]), order(b.cells[column])));
      body.append(...(down ? rows.reverse() : rows));
    });
  });
  const form = table.parentElement.querySelector("form.find");
  if (!form || form.querySelector("input[type=search]").value) continue;
  form.querySelector("button").hidden = true;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("input[type=search]").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
