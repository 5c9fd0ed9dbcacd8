// Shows the fields that the choices above them call for: data-when="pick=first|random" over the fields whose names begin with "try-".
const form = document.getElementById("reward-form");

function holds(condition) {
  const [name, wanted] = condition.split("=");
  return wanted.split("|").includes(form?.elements[`try-${name}`]?.value);
}

function update() {
  for (const box of document.querySelectorAll("[data-when]")) box.hidden = !box.dataset.when.split(" ").every(holds);
}

document.addEventListener("change", update);
update();
