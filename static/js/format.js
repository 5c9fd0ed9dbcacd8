// Numbers and times as a reader wants them. Every one takes null for "not known" and answers a dash.
const DASH = "–";
const known = (x) => x !== null && x !== undefined;

export function number(x, digits = 3) {
  if (!known(x)) return DASH;
  if (!Number.isFinite(x)) return "not finite";
  if (x !== 0 && Math.abs(x) < 10 ** -digits) return x.toExponential(1);
  return x.toFixed(digits);
}

/** For quantities that live near zero: 0, 3.1e-6, 0.0042. */
export function tiny(x) {
  if (!known(x) || !Number.isFinite(x)) return number(x);
  if (x === 0) return "0";
  return Math.abs(x) < 0.001 ? x.toExponential(1) : x.toFixed(4);
}

/** Axis labels: as few digits as tell them apart. */
export const compact = (x) => (x === 0 ? "0" : Math.abs(x) < 0.001 ? x.toExponential(0) : String(Number(x.toPrecision(3))));

/** 3.4 · 128 · 2,048 */
export const length = (x) => (known(x) && x < 100 ? x.toFixed(1) : count(x));

export const count = (x) => (known(x) ? Math.round(x).toLocaleString("en") : DASH);

export function percent(x) {
  if (!Number.isFinite(x)) return DASH;
  if (x > 0 && x < 0.001) return "< 0.1 %";
  return `${(100 * x).toFixed(x > 0 && x < 0.0995 ? 1 : 0)} %`;
}

export function signed(x, digits = 2) {
  if (!known(x)) return DASH;
  return `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;
}

/** 0.42 s · 12.3 s · 4 min 05 s · 2 h 11 min · 3 d 4 h */
export function duration(seconds) {
  if (!known(seconds) || !Number.isFinite(seconds)) return DASH;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** For axes, which have little room: 45 s · 4m05 · 2h11 */
export function shortDuration(seconds) {
  if (seconds < 60) return `${compact(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (seconds < 3600) return `${minutes}m${String(Math.round(seconds % 60)).padStart(2, "0")}`;
  return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, "0")}`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(x) {
  if (!known(x)) return DASH;
  let unit = 0;
  while (x >= 1000 && unit < UNITS.length - 1) {
    x /= 1000;
    unit += 1;
  }
  return `${unit && x < 100 ? x.toFixed(1) : Math.round(x)} ${UNITS[unit]}`;
}

// Times are written one way on every page and by the server (portal/pages/templatetags/ui.py): 24 hours, day before month, in words.
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MOMENT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
export const clock = (at) => (at ? CLOCK.format(new Date(at)) : DASH);
export const moment = (at) => MOMENT.format(new Date(at));
