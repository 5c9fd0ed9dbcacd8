// The form that says how columns are read: shows the fields of the chosen shape. Without this script all of them are there.
const form = document.querySelector("#reading-form");

function update() {
  const shape = form.querySelector("input[name=shape]:checked")?.value ?? "plain";
  for (const box of form.querySelectorAll("[data-shape]")) box.hidden = !box.dataset.shape.split(" ").includes(shape);
}

if (form) {
  form.addEventListener("change", update);
  update();
}
