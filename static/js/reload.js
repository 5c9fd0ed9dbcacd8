// <… data-reload-to="/address/"> on a page that is the answer to a form: reloading it asks for that address and does not send the form again.
history.replaceState(null, "", document.querySelector("[data-reload-to]").dataset.reloadTo);
