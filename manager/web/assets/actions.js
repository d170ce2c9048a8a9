// What may be done with a run: abort, retry, run again, and answer.
import { part, post } from './api.js';
import { fill, h } from './dom.js';
import { fieldOf } from './inputs.js';
import { ask, outcome } from './parts.js';
import { permit } from './role.js';
import { ended, look } from './status.js';
import { t } from './texts.js';

/** The actions of failure strategies that answer a part that waits for a decision. */
const DECISIONS = ['Retry', 'Ignore', 'MarkAsSuccess', 'MarkAsFailure', 'Abort', 'StageRollback', 'PipelineRollback', 'RetryStepGroup'];

/** @param {any} ctx @param {import('./model.js').Model} model @param {() => void} reopen */
export function actions(ctx, model, reopen) {
  const result = outcome();
  const el = h('div', { class: 'buttons' });
  const onPart = h('div', { class: 'buttons' });
  let drawn = '';

  /** @param {string} what @param {any} order */
  const send = (what, order) => result.of(() => post(`api/runs/${part(ctx.id)}/${what}`, { ...order, by: ctx.session.user || ctx.session.account }));

  const button = (/** @type {string} */ text, /** @type {() => void} */ click, look = '') => permit(ctx.session, 'run', h('button', { type: 'button', class: look, on: { click } }, text));

  /** @param {string} node */
  async function abort(node) {
    const answer = await ask({ title: t.run.abortTitle, text: t.run.abortRun, fields: [{ name: 'reason', label: t.run.why }], go: t.run.aborting, danger: true });
    if (answer) await send('abort', { node: node || undefined, reason: answer.reason || undefined });
  }

  /** @param {string} node */
  async function retry(node) {
    if (!await ask({ title: t.run.retryTitle, text: t.run.retryText, go: t.run.retry })) return;
    if (await send('retry', { node: node || undefined })) reopen();
  }

  async function again() {
    if (!await ask({ title: t.run.againTitle, text: t.run.againText, go: t.run.again })) return;
    const run = await send('again', {});
    if (run) ctx.go('runs/' + run.id, {});
  }

  /** @param {any} n */
  async function decide(n) {
    const answer = await ask({ title: t.run.answerTitle, text: n.reason, fields: [{ name: 'action', label: t.run.action, options: DECISIONS }, { name: 'comment', label: t.run.comment }], go: t.run.send });
    if (answer) await send('answer', { node: n.path, answer: { action: answer.action, comment: answer.comment || undefined } });
  }

  /** @param {string} node */
  async function fail(node) {
    const answer = await ask({ title: t.run.failTitle, text: t.run.failText, fields: [{ name: 'comment', label: t.run.comment }], go: t.run.fail, danger: true });
    if (answer) await send('answer', { node, answer: { action: 'MarkAsFailure', comment: answer.comment || undefined } });
  }

  /** @param {any} n */
  async function give(n) {
    const answer = await ask({ title: t.run.answerTitle, text: n.reason, fields: (n.inputs || []).map(fieldOf), go: t.run.send });
    if (answer) await send('answer', { node: n.path, answer: { inputs: answer } });
  }

  /** @param {any} n @param {boolean} approve */
  async function approval(n, approve) {
    const answer = await ask({ title: approve ? t.run.approve : t.run.reject, text: n.reason, fields: [{ name: 'comment', label: t.run.comment }], go: approve ? t.run.approve : t.run.reject, danger: !approve });
    if (answer) await send('answer', { node: n.path, answer: { approve, comment: answer.comment || undefined } });
  }

  return { el, part: onPart, outcome: result.el, update(/** @type {any} */ n) {
    const over = Boolean(model.run.ended_at);
    const state = [over, n && n.path, n && n.status].join();
    if (state === drawn) return;
    drawn = state;
    fill(el, over ? [button(t.run.retry, () => retry('')), button(t.run.again, again)] : button(t.run.abort, () => abort(''), 'danger'));
    if (!n) return fill(onPart);
    const stage = model.stageOf(n) || n;
    const top = over && (n.kind === 'stage' || n.kind === 'strategy' || n.kind === 'step') ? model.nodes.get(topOf(stage)) : null;
    const waits = look(n.status) === 'ask' && model.children(n).length === 0;
    fill(onPart,
      waits && n.status === 'APPROVAL_WAITING' ? [button(t.run.approve, () => approval(n, true), 'primary'), button(t.run.reject, () => approval(n, false))] : null,
      waits && n.status === 'INTERVENTION_WAITING' ? button(t.run.answer, () => decide(n), 'primary') : null,
      waits && n.status === 'INPUT_WAITING' ? button(t.run.answer, () => give(n), 'primary') : null,
      n.kind === 'step' && n.status === 'RUNNING' && n.type !== 'Background' ? button(t.run.fail, () => fail(n.path)) : null,
      top ? button(t.run.retryHere, () => retry(top.path)) : null,
      !over && n.kind !== 'pipeline' && !ended(n.status) ? button(t.run.abort, () => abort(n.path)) : null);
  } };

  /** The path of the stage, or of the strategy around it. @param {any} stage */
  function topOf(stage) {
    const parent = model.nodes.get(stage.parent);
    return parent && parent.kind === 'strategy' ? parent.path : stage.path;
  }
}
