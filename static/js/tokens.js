// The design tokens as colours a canvas understands. A probe element resolves light-dark(), which a custom property keeps unresolved.
const probe = document.createElement("span");
probe.hidden = true;

export function colour(token) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${token})`;
  return getComputedStyle(probe).color;
}

export function fontFamily() {
  return getComputedStyle(document.body).fontFamily;
}
