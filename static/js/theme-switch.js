// The three-way switch in the user menu: system, light, dark. Charts listen for "themechange" and redraw.
const root = document.documentElement;
const buttons = [...document.querySelectorAll("[data-theme-choice]")];

function show() {
  const now = root.dataset.theme ?? "system";
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.themeChoice === now));
}

function choose(theme) {
  if (theme === "system") {
    delete root.dataset.theme;
    localStorage.removeItem("theme");
  } else {
    root.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }
  show();
  announce();
}

const announce = () => document.dispatchEvent(new CustomEvent("themechange"));

for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.themeChoice));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announce);
show();
