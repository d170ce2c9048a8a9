// The state of a run, from its events.
import { ended, failed, look } from './status.js';

export class Model {
  constructor() {
    /** @type {any} */
    this.run = null;
    /** @type {Map<string, any>} by path */
    this.nodes = new Map();
    /** @type {Map<string, any[]>} by the path of the parent */
    this.below = new Map();
    /** @type {Map<string, any>} parts without a status */
    this.made = new Map();
    this.version = 0;
  }

  /** Reads everything again with the next event: a retry may have removed parts. */
  restart() {
    this.version = 0;
  }

  /** @param {{run: any, nodes: any[]}} change */
  apply(change) {
    if (this.version === 0) {
      this.nodes.clear();
      this.below.clear();
    }
    this.run = change.run;
    this.version = change.run.version;
    for (const n of change.nodes || []) {
      if (!n.status) {
        this.made.set(n.path, n); // a part that only gave another one its name
        continue;
      }
      const known = this.nodes.get(n.path);
      this.nodes.set(n.path, n);
      if (n.path === n.parent || !n.parent) continue;
      let list = this.below.get(n.parent);
      if (!list) this.below.set(n.parent, list = []);
      if (known) list[list.findIndex(o => o.path === n.path)] = n;
      else list.push(n);
      if (!known) list.sort((a, b) => a.order - b.order || (a.path < b.path ? -1 : 1));
    }
  }

  root() {
    for (const n of this.nodes.values()) if (n.kind === 'pipeline') return n;
    return null;
  }

  /** @param {any} n @returns {any[]} */
  children(n) { return n ? this.below.get(n.path) || [] : []; }

  /** @param {any} n */
  title(n) {
    const name = n.name || n.identifier;
    const values = n.matrix ? matrixText(n.matrix) : '';
    const parent = this.nodes.get(n.parent);
    return values && parent && parent.kind === 'strategy' ? `${parent.name || parent.identifier} (${values})` : name;
  }

  /** The stage that a part belongs to. @param {any} n */
  stageOf(n) {
    for (let at = n; at; at = this.nodes.get(at.parent)) if (at.kind === 'stage') return at;
    return null;
  }

  /** The key of the log of a step, or an empty text. @param {any} n */
  logKey(n) {
    if (n.log_key) return n.log_key;
    if (n.kind !== 'step' || !n.started_at) return '';
    const stage = this.stageOf(n);
    return stage && stage.stage_id && n.step_id ? `${stage.stage_id}/${n.step_id}` : '';
  }

  /** The part that a person wants to see first: what waits for a person, what failed, what runs, or the last. */
  interesting() {
    let running = null, last = null;
    for (const n of this.ordered()) {
      if (look(n.status) === 'ask' && this.children(n).length === 0) return n;
      if (n.kind !== 'step') continue;
      if (failed(n.status)) return n;
      if (look(n.status) === 'run') running = running || n;
      if (n.started_at) last = n;
    }
    return running || last || this.stages()[0] || null;
  }

  /** All parts, parents before their children. */
  ordered() {
    const out = [];
    const add = (/** @type {any} */ n) => {
      out.push(n);
      for (const c of this.children(n)) add(c);
    };
    const root = this.root();
    if (root) add(root);
    return out;
  }

  /** The stages, and strategies of stages. */
  stages() { return this.children(this.root()); }

  /** How far the steps below a part are. @param {any} n */
  tally(n) {
    const sum = { done: 0, all: 0 };
    for (const c of this.children(n)) {
      if (c.kind === 'step') {
        sum.all++;
        if (ended(c.status)) sum.done++;
      } else {
        const below = this.tally(c);
        sum.all += below.all;
        sum.done += below.done;
      }
    }
    return sum;
  }
}

/** The values of a cell as text. @param {any} matrix */
export function matrixText(matrix) {
  return Object.entries(matrix).map(([, v]) => typeof v === 'object' ? JSON.stringify(v) : String(v)).join(', ');
}
