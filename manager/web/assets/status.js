// The look of a status: a word, a tone and a shape, so that colour is never the only sign.
import { h, icon, set, write } from './dom.js';
import { t } from './texts.js';

const SHAPES = {
  ok: 'M3 8.5l3.2 3.2L13 5',
  bad: 'M4 4l8 8M12 4l-8 8',
  run: 'M8 2a6 6 0 1 1-6 6',
  wait: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM8 5v3.2l2.2 1.6',
  ask: 'M8 1.8L14.2 8 8 14.2 1.8 8zM8 5v3.6M8 10.6v.2',
  skip: 'M3.5 8h9',
  stop: 'M4 4h8v8H4z',
  soft: 'M2.5 9c2-4 3.5 3 6 0M10 8l1.6 1.6L14.5 6',
  late: 'M4.5 2.5h7M4.5 13.5h7M5 2.5c0 4 6 7 6 11M11 2.5c0 4-6 7-6 11',
  none: 'M8 5.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5z',
};

// Statuses of runs, of stages of the manager, and of delegates, with their shapes.
const LOOK = {
  NOT_STARTED: 'none', QUEUED: 'wait', RUNNING: 'run', CANCELLING: 'run',
  INPUT_WAITING: 'ask', APPROVAL_WAITING: 'ask', INTERVENTION_WAITING: 'ask',
  SUCCEEDED: 'ok', SUCCESS: 'ok', ALIVE: 'ok', IGNORE_FAILED: 'soft', SKIPPED: 'skip',
  FAILED: 'bad', FAILURE: 'bad', ERRORED: 'bad', APPROVAL_REJECTED: 'bad', LOST: 'bad',
  EXPIRED: 'late', TIMEOUT: 'late', ABORTED: 'stop', DRAINING: 'late',
};

/** @param {string} status */
export const look = status => Object.hasOwn(LOOK, status) ? LOOK[status] : 'none';

/** @param {string} status */
export const word = status => Object.hasOwn(t.status, status) ? t.status[status] : String(status).toLowerCase();

const ENDED = new Set(['ok', 'bad', 'late', 'stop', 'skip', 'soft']);

/** Reports whether a status is final. @param {string} status */
export const ended = status => status !== 'DRAINING' && ENDED.has(look(status));

/** Reports whether a status is a bad end. @param {string} status */
export const failed = status => ['bad', 'late', 'stop'].includes(look(status));

/** A shape for a status, followed by its word unless it is for screen readers only. @param {string} status @param {boolean} [short] */
export function badge(status, short = false) {
  const text = h('span', { class: short ? 'unseen' : '' });
  const el = h('span', { class: 'badge' }, h('span', { class: 'shape' }), text);
  const update = (/** @type {string} */ s) => {
    const l = look(s);
    if (el.dataset.status === s) return;
    el.dataset.status = s;
    set(el, { class: `badge tone-${l}${short ? ' short' : ''}`, title: short ? word(s) : null });
    el.firstChild.replaceChildren(icon(SHAPES[l], l === 'run' ? 'spin' : ''));
    write(text, word(s));
  };
  update(status);
  return { el, update };
}
