// The parts of a stage that no step of a pipeline shows: the wait for a delegate, the init with its clone, and the cleanup.
import { get, part } from './api.js';
import { address } from './dom.js';
import { ended } from './status.js';
import { t } from './texts.js';
import { ms } from './time.js';

/**
 * The parts before and after the steps of a stage of the manager, in the form of the parts of a run.
 * @param {any} s
 */
export function phases(s) {
  const over = ended(s.status);
  const node = (/** @type {string} */ id, /** @type {any} */ p, /** @type {string} */ of) => ({
    path: `${s.id} ${id}`, kind: 'phase', name: t.stages.parts[id], status: p.status, created_at: p.started_at, started_at: p.started_at, ended_at: p.ended_at,
    href: address('stages/' + s.id, { node: 'part.' + of }),
  });
  const { init, cleanup } = s;
  const first = [node('queue', { status: 'QUEUED', started_at: s.submitted_at, ended_at: s.started_at || s.ended_at }, init.id)];
  if (init.started_at) first.push(node('init', init, init.id));
  const clone = cloneOf(init);
  if (clone) first.push(node('clone', clone, init.id));
  return { first, last: cleanup.started_at ? [node('cleanup', cleanup, cleanup.id)] : [], over };
}

/** The clone within an init, with its times. @param {any} init */
function cloneOf(init) {
  if (!init.clone || !init.started_at) return null;
  const from = ms(init.started_at) + init.clone.after_ms;
  return { status: init.status, started_at: new Date(from).toISOString(), ended_at: new Date(from + init.clone.took_ms).toISOString() };
}

const AT_A_TIME = 4;
const AGAIN = 2000;
const MOST = 200; // stages of a run

/**
 * @typedef {object} Store
 * @property {(n: any) => ReturnType<typeof phases>|null} of the phases of a part, or null
 * @property {(all: Iterable<any>) => boolean} read reads what is new, and reports whether something may still change
 */

/** Reads the stages of a run from the manager, as long as they change. @param {() => void} changed @returns {Store} */
export function phaseStore(changed) {
  /** @type {Map<string, {at: number, found: any, final: boolean}>} */
  const known = new Map();
  let busy = 0;

  /** @param {string} id @param {any} entry */
  async function load(id, entry) {
    busy++;
    entry.at = Infinity;
    try {
      entry.found = phases(await get('api/stages/' + part(id)).catch(err => {
        if (err.status !== 404) throw err;
        return get('api/history/stages/' + part(id)); // the manager has forgotten it
      }));
      entry.final = entry.found.over;
    } catch (err) {
      entry.final = err.status === 404 && entry.missed; // it may not be open yet
      entry.missed = true;
    }
    entry.at = performance.now();
    busy--;
    changed();
  }

  return {
    of: n => known.get(n.stage_id)?.found || null,
    read(all) {
      if (document.hidden) return true;
      let open = false;
      const stages = [...all].filter(n => n.kind === 'stage' && n.log_key);
      for (const { stage_id: id } of stages.slice(0, MOST)) {
        let entry = known.get(id);
        if (!entry) known.set(id, entry = { at: -Infinity, found: null, final: false });
        if (entry.final) continue;
        open = true;
        if (busy < AT_A_TIME && performance.now() - entry.at > AGAIN) load(id, entry);
      }
      return open;
    },
  };
}
