// Server-sent events over fetch: unlike EventSource it shows the status of an answer, and its reader sets the pace.
import { Failure, failureOf } from './api.js';

// Without a byte for this time a connection is dead: the servers send a comment every 15 s.
const SILENCE = 40_000;
// A hidden page gives its connections back after this time, because a browser has only six for a server.
const HIDDEN = 30_000;

/** @typedef {{type: string, id: string, data: string}} Message */

/**
 * Follows a stream of events until close is called or the stream has ended for good. After a lost connection it asks for the
 * address again, so the caller says where to continue.
 * @param {() => string} url
 * @param {(batch: Message[]) => void|Promise<void>} receive waits for the returned promise before it reads on
 * @param {(state: 'live'|'lost'|'ended'|'failed', err?: Failure) => void} tell
 * @param {(batch: Message[]) => boolean} [last] reports that nothing follows
 */
export function feed(url, receive, tell, last = () => false) {
  const closing = new AbortController();
  follow(url, receive, tell, last, closing.signal).catch(err => {
    if (!closing.signal.aborted) console.error(err);
  });
  return { close: () => closing.abort() };
}

/** @param {any} url @param {any} receive @param {any} tell @param {any} last @param {AbortSignal} signal */
async function follow(url, receive, tell, last, signal) {
  for (let tries = 0; !signal.aborted; tries++) {
    await visible(signal);
    if (signal.aborted) return;
    const connection = new Connection(signal);
    try {
      const answer = await fetch(url(), { signal: connection.signal, headers: { Accept: 'text/event-stream', 'Dlite-Page': '1' }, cache: 'no-store' });
      if (answer.status === 204) return tell('ended');
      if (!answer.ok) throw await failureOf(answer);
      tell('live');
      for await (const batch of messages(answer, connection)) {
        tries = 0;
        await receive(batch);
        if (last(batch)) return tell('ended');
      }
    } catch (err) {
      if (signal.aborted) return;
      if (err instanceof Failure && err.status >= 400 && err.status < 500 && err.status !== 429 && err.status !== 408) return tell('failed', err);
      if (!connection.quiet) tell('lost', err instanceof Failure ? err : undefined);
      if (connection.quiet) continue;
    } finally {
      connection.end();
    }
    await pause(Math.min(500 * 2 ** tries, 10_000) * (0.7 + Math.random() * 0.6), signal);
  }
}

/** One connection: it ends with the feed, in silence, and some time after the page was hidden. */
class Connection {
  /** @param {AbortSignal} signal */
  constructor(signal) {
    this.control = new AbortController();
    this.signal = this.control.signal;
    this.quiet = false;
    this.stop = () => this.control.abort();
    this.watch = () => {
      clearTimeout(this.leaving);
      if (document.hidden) this.leaving = setTimeout(() => { this.quiet = true; this.stop(); }, HIDDEN);
    };
    this.outer = signal;
    signal.addEventListener('abort', this.stop);
    document.addEventListener('visibilitychange', this.watch);
    this.heard();
  }

  heard() {
    clearTimeout(this.silence);
    this.silence = setTimeout(this.stop, SILENCE);
  }

  end() {
    clearTimeout(this.silence);
    clearTimeout(this.leaving);
    this.outer.removeEventListener('abort', this.stop);
    document.removeEventListener('visibilitychange', this.watch);
    this.stop();
  }
}

/** @param {Response} answer @param {Connection} connection @returns {AsyncGenerator<Message[]>} */
async function* messages(answer, connection) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    connection.heard();
    rest += value;
    const end = rest.lastIndexOf('\n\n');
    if (end < 0) continue;
    const batch = [];
    for (const block of rest.slice(0, end).split('\n\n')) {
      const m = message(block);
      if (m) batch.push(m);
    }
    rest = rest.slice(end + 2);
    if (batch.length) yield batch;
  }
}

/** @param {string} block @returns {Message|null} */
function message(block) {
  const m = { type: 'message', id: '', data: '' };
  let some = false;
  for (const line of block.split('\n')) {
    if (line.startsWith('data: ')) {
      m.data += (some ? '\n' : '') + line.slice(6);
      some = true;
    } else if (line.startsWith('id: ')) m.id = line.slice(4);
    else if (line.startsWith('event: ')) m.type = line.slice(7);
  }
  if (!some && m.id) m.type = 'position';
  return some || m.id ? m : null;
}

/** Waits. @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return new Promise(resolve => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      window.removeEventListener('online', done);
      resolve(undefined);
    }
    signal.addEventListener('abort', done);
    window.addEventListener('online', done);
  });
}

/** Waits until the page is visible. @param {AbortSignal} signal */
function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise(resolve => {
    function done() {
      if (document.hidden && !signal.aborted) return;
      signal.removeEventListener('abort', done);
      document.removeEventListener('visibilitychange', done);
      resolve(undefined);
    }
    signal.addEventListener('abort', done);
    document.addEventListener('visibilitychange', done);
  });
}

/** Lets the browser draw and handle input if this task has run for long. @param {{at: number}} turn */
export async function breathe(turn) {
  if (performance.now() - turn.at < 8) return;
  await new Promise(resolve => setTimeout(resolve));
  turn.at = performance.now();
}
