// Building and filling elements. Text always goes in as text: a prompt, a name or an error can never become markup.
export const $ = (selector, root = document) => root.querySelector(selector);

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function icon(name) {
  const template = document.getElementById(`icon-${name}`);
  return template.content.firstElementChild.cloneNode(true);
}

/** Sets text only where it changed, so that screen readers and selections are left alone. */
export function write(target, text) {
  const element = typeof target === "string" ? $(target) : target;
  if (element && element.textContent !== text) element.textContent = text;
}
