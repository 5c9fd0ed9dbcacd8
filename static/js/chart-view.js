// What all charts of a page share: the zoom, the smoothing and the scale. A zoom pauses following; `live()` goes back to it.
export class View {
  constructor() {
    this.range = null;
    this.smoothing = 0;
    this.log = false;
    this.listeners = [];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  /** `range`: [from, to] on the x axis; null follows the newest point. */
  zoom(range) {
    this.#become({ range });
  }

  live() {
    this.#become({ range: null });
  }

  set(changes) {
    this.#become(changes);
  }

  #become(changes) {
    Object.assign(this, changes);
    for (const listener of this.listeners) listener(changes);
  }
}

/**
 * An exponential mean in steps, not in points: a bucket of sixteen steps moves it as far as sixteen steps of that mean would, so that what is seen
 * does not depend on how the history was sampled. `strength` 0 (raw) to 1; unknown values are left out.
 */
export function smoothed(xs, values, strength) {
  const keep = Math.min(0.995, strength);
  let mean = null;
  let last = null;
  return values.map((value, i) => {
    if (!Number.isFinite(value)) return null;
    const kept = mean === null ? 0 : keep ** Math.max(1, xs[i] - last);
    mean = mean === null ? value : kept * mean + (1 - kept) * value;
    last = xs[i];
    return mean;
  });
}
