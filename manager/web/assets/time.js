// Times and durations.
import { h, set, write } from './dom.js';
import { t } from './texts.js';

/** A duration as text. @param {number} ms */
export function span(ms) {
  if (!(ms >= 0)) return '';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${Math.floor(s % 60)} s`;
  const hours = Math.floor(m / 60);
  if (hours < 48) return `${hours} h ${m % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// The difference of the clock of the manager to the clock of this machine, from the last answer.
let skew = 0;

/** @param {string|null} date the header of an answer */
export function setClock(date) {
  const at = date ? Date.parse(date) : NaN;
  if (!Number.isNaN(at) && Math.abs(at - Date.now()) > 2000) skew = at - Date.now();
}

export const now = () => Date.now() + skew;

/** The milliseconds of a time of the API, or NaN. @param {string|undefined} text */
export const ms = text => text && !text.startsWith('0001-') ? Date.parse(text) : NaN;

const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/** A time as text. @param {number} at */
export const clock = at => Number.isNaN(at) ? '' : DAY.format(at);

/** How long ago a time is. @param {number} at */
function ago(at) {
  const s = Math.round((now() - at) / 1000);
  if (s < -5) return t.in(span(-s * 1000));
  if (s < 5) return t.justNow;
  if (s < 60) return t.ago(`${s} s`);
  if (s < 3600) return t.ago(`${Math.floor(s / 60)} min`);
  if (s < 172800) return t.ago(`${Math.floor(s / 3600)} h`);
  return t.ago(`${Math.floor(s / 86400)} d`);
}

/** An element for the time since, or until, a time. */
export function since() {
  const el = h('time', { class: 'num' });
  return { el, update: (/** @type {string|undefined} */ text) => {
    const at = ms(text);
    set(el, { datetime: text || null, title: clock(at), 'data-ago': Number.isNaN(at) ? null : at });
    write(el, Number.isNaN(at) ? '' : ago(at));
  } };
}

/** An element for a duration. It counts while the end is missing. */
export function lasting() {
  const el = h('span', { class: 'num' });
  return { el, update: (/** @type {string|undefined} */ from, /** @type {string|undefined} */ to) => {
    const a = ms(from), b = ms(to);
    const runs = !Number.isNaN(a) && Number.isNaN(b);
    set(el, { 'data-from': runs ? a : null });
    write(el, Number.isNaN(a) ? '' : span((runs ? now() : b) - a));
  } };
}

// One clock for all elements that count.
setInterval(() => {
  if (document.hidden) return;
  for (const el of document.querySelectorAll('[data-from]')) write(el, span(Math.floor((now() - Number(el.getAttribute('data-from'))) / 1000) * 1000));
  for (const el of document.querySelectorAll('[data-ago]')) write(el, ago(Number(el.getAttribute('data-ago'))));
}, 1000);
