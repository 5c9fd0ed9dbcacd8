// <button data-copy="#id"> copies the value or text of that element and says so, to eyes and to screen readers.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = document.querySelector(button.dataset.copy);
    const text = source.value ?? source.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) {
      console.info("clipboard refused, selecting instead", error.name);
      source.select?.();
      return;
    }
    const label = button.querySelector("[data-label]") ?? button;
    const before = label.textContent;
    label.textContent = "Copied";
    setTimeout(() => (label.textContent = before), 1600);
  });
}
