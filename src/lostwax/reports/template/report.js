"use strict";
(() => {
  const byId = (id) => document.getElementById(id);

  // Theme: the system's until the reader asks for the other.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const button = byId("theme");
  const other = () => (theme() === "dark" ? "light" : "dark");
  const name = () => { button.textContent = other() === "dark" ? "Dark" : "Light"; };
  button.addEventListener("click", () => { root.dataset.theme = other(); name(); });
  dark.addEventListener("change", name);
  button.hidden = false;
  name();

  // Threshold: which reconstructions count.
  if (!byId("games")) return;
  const { errors, threshold, low, high } = JSON.parse(byId("games").textContent);
  const slider = byId("threshold");
  const chart = document.querySelector(".chart[data-decade]");
  const line = document.querySelector("[id$='-threshold']");
  const raised = (text) => text.replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)]));
  const number = (value) => {
    if (value >= 1e-3 && value < 1e5) return String(Number(value.toPrecision(2)));
    const [digits, exponent] = value.toExponential(1).split("e");
    return `${digits}×10${raised(exponent.replace("+", ""))}`;
  };
  const show = (limit) => {
    const won = errors.filter((error) => error !== null && error <= limit).length;
    byId("count").textContent = `${won.toLocaleString("en")} of ${errors.length.toLocaleString("en")}`;
    byId("limit").textContent = number(limit);
    slider.setAttribute("aria-valuetext", number(limit));
    for (const pair of document.querySelectorAll(".pair")) {
      pair.classList.toggle("counts", Number(pair.dataset.error) <= limit);
    }
    if (line) line.setAttribute("transform", `translate(${Math.log10(limit / threshold) * Number(chart.dataset.decade)} 0)`);
  };
  const reset = () => {
    slider.value = String(Math.round((1000 * (Math.log10(threshold) - low)) / (high - low)));
    show(threshold);
  };
  slider.addEventListener("input", () => show(10 ** (low + (Number(slider.value) / 1000) * (high - low))));
  byId("reset").addEventListener("click", reset);
  document.querySelector(".static").hidden = true;
  document.querySelector(".slider").hidden = false;
  reset();
})();
