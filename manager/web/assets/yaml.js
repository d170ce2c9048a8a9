// The definition of a run, as it was written and as it ran.
import { get } from './api.js';
import { fill, h, set } from './dom.js';
import { notice } from './parts.js';
import { t } from './texts.js';

/** @param {string} run the path of the run's calls */
export function definition(run) {
  const message = notice();
  const code = h('pre', { class: 'yaml', tabindex: 0, 'aria-label': t.run.yaml });
  const written = h('button', { type: 'button', on: { click: () => load('definition') } }, t.run.written);
  const ran = h('button', { type: 'button', on: { click: () => load('resolved') } }, t.run.ran);
  const el = h('section', { 'aria-label': t.run.yaml, hidden: true }, h('div', { class: 'buttons spaced' }, written, ran), message.el, code);
  let chosen = '';

  /** @param {string} which */
  async function load(which) {
    chosen = which;
    set(written, { 'aria-pressed': String(which === 'definition') });
    set(ran, { 'aria-pressed': String(which === 'resolved') });
    fill(code);
    message.loading();
    try {
      const text = await get(run + '/' + which);
      if (which !== chosen) return;
      fill(code, text);
      message.clear();
    } catch (err) {
      if (which === chosen) message.failed(err, () => load(which));
    }
  }

  return { el, show(/** @type {boolean} */ on) {
    set(el, { hidden: !on });
    if (on && !chosen) load('definition');
  } };
}
