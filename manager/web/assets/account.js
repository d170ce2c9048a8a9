// The events of the account: one stream for all views, open while a view needs it.
import { feed } from './feed.js';

/** @type {Set<{event: (e: any) => void, tell: (state: string) => void}>} */
const listeners = new Set();
/** @type {{close: () => void}|null} */
let source = null;
let lastId = '';
let state = 'loading';

/**
 * Calls event for each event of the account, and for {type: "missed"} if events were lost.
 * @param {(e: any) => void} event @param {(state: any) => void} tell
 */
export function follow(event, tell) {
  const listener = { event, tell };
  listeners.add(listener);
  if (!source) {
    lastId = '';
    source = feed(() => 'api/events' + (lastId ? '?since=' + lastId : ''), receive, s => {
      // What happened while there was no connection may be lost, so views read again.
      if (s === 'live' && state === 'lost') for (const l of listeners) l.event({ type: 'missed' });
      state = s;
      for (const l of listeners) l.tell(s);
    });
  } else tell(state);
  return { close() {
    listeners.delete(listener);
    if (listeners.size || !source) return;
    source.close();
    source = null;
    state = 'loading';
  } };
}

/** @param {any[]} batch */
function receive(batch) {
  for (const m of batch) {
    if (m.id) lastId = m.id;
    if (m.type === 'position') continue;
    let e;
    try {
      e = m.type === 'missed' ? { type: 'missed' } : JSON.parse(m.data);
    } catch {
      continue;
    }
    for (const l of listeners) l.event(e);
  }
}

/**
 * Returns a function that runs a task soon, at most once per interval, and never twice at the same time.
 * A task that takes long runs more rarely, so that it takes a fifth of the time at most.
 * @param {() => Promise<any>} task @param {number} interval in milliseconds
 */
export function calm(task, interval) {
  let timer = 0, busy = false, wanted = false, lastAt = -Infinity, took = 0, closed = false;
  async function go() {
    timer = 0;
    busy = true;
    wanted = false;
    lastAt = performance.now();
    try {
      await task();
    } finally {
      busy = false;
      took = performance.now() - lastAt;
      if (wanted) run();
    }
  }
  function run() {
    wanted = true;
    if (timer || busy || closed) return;
    timer = window.setTimeout(go, Math.max(0, lastAt + Math.max(interval, 5 * took) - performance.now()));
  }
  return { run, close() { closed = true; clearTimeout(timer); } };
}

/** Repeats a task while the page is visible. @param {() => void} task @param {number} interval */
export function repeat(task, interval) {
  const timer = setInterval(() => { if (!document.hidden) task(); }, interval);
  return { close: () => clearInterval(timer) };
}
