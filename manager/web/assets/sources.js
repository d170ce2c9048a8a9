// Where the lines of a log come from: the log of one part, or the logs of all steps of a run.
import { part, query } from './api.js';
import { ms } from './time.js';

/**
 * @typedef {object} Source
 * @property {string} id
 * @property {(next: number) => string} url where to read on
 * @property {(m: any, add: (pos: number, out: string, time: number, tag?: any) => void, next: number) => void} read
 * @property {(m: any) => boolean} last
 * @property {string} download
 */

/** The log of one part. A log that is to come is waited for. @param {string} key @param {boolean} over @returns {Source} */
export function logOf(key, over) {
  return {
    id: key,
    url: next => 'logs/stream' + query({ key, from: next, wait: over ? 2 : 300 }),
    read(m, add) {
      let line;
      try {
        line = JSON.parse(m.data);
      } catch {
        line = { out: m.data };
      }
      add(Number(m.id), typeof line.out === 'string' ? line.out : m.data, ms(line.time));
    },
    last: m => m.type === 'eof',
    download: 'logs/stream' + query({ key, format: 'text' }),
  };
}

/** The logs of all steps of a run, as they arrive. @param {string} run @returns {Source} */
export function logsOf(run) {
  const path = 'api/runs/' + part(run) + '/logs';
  const tags = new Map();
  let since = '';
  return {
    id: 'run ' + run,
    url: () => path + query({ since }),
    read(m, add, next) {
      const p = JSON.parse(m.data);
      since = m.id;
      let tag = tags.get(p.node);
      if (!tag) tags.set(p.node, tag = { node: p.node, text: p.node.replace(/^pipeline\.stages\./, '').replaceAll('.spec.execution.steps.', '/').replaceAll('.steps.', '/') });
      for (const l of p.lines) add(next++, l.out, ms(l.time), { tag, pos: l.pos });
    },
    last: m => m.type === 'end',
    download: path + query({ format: 'text' }),
  };
}
