// All words of the page. A translation replaces this file.
const many = (/** @type {number} */ n, /** @type {string} */ one, /** @type {string} */ more) => `${n.toLocaleString('en')} ${n === 1 ? one : more}`;

export const t = {
  product: 'dlite',
  skip: 'Skip to the content',
  menu: 'Views',
  views: { runs: 'Runs', stages: 'Stages', queue: 'Queue', delegates: 'Delegates', schedules: 'Schedules', triggers: 'Triggers', limits: 'Limits', perpetual: 'Perpetual', daemons: 'Daemons', connectors: 'Connectors', upgrades: 'Updates' },
  unreachable: 'The manager cannot be reached. The page tries again.',
  in: (/** @type {string} */ s) => `in ${s}`,
  ago: (/** @type {string} */ s) => `${s} ago`,
  justNow: 'just now',
  loading: 'Loading…',
  again: 'Try again',
  more: 'Older',
  first: 'Newest',
  clear: 'Clear the filters',
  filter: 'Filter',
  none: '–',
  notFound: 'There is no such view.',
  feed: { live: 'Live', lost: 'Connection lost, trying again', failed: 'Not live', ended: 'Ended', loading: 'Connecting' },

  signIn: {
    title: 'Sign in', account: 'Account', token: 'Token', help: 'An API token of the account, for example from “manager token ACCOUNT”.',
    role: 'This session may', roles: { operate: 'do everything', run: 'start, abort and retry', read: 'only look' },
    go: 'Sign in', out: 'Sign out', ended: 'The session has ended.', busy: 'Checking…',
    at: (/** @type {string} */ name) => `Sign in with ${name}`, or: 'Or with a token', switch: 'Account',
    needs: (/** @type {string} */ has, /** @type {string} */ role) => `This session may ${has}. Sign in with a role that may ${role}.`,
  },

  status: {
    NOT_STARTED: 'not started', QUEUED: 'queued', RUNNING: 'running', CANCELLING: 'cancelling', INPUT_WAITING: 'waits for input',
    APPROVAL_WAITING: 'waits for approval', INTERVENTION_WAITING: 'waits for a decision', SUCCEEDED: 'succeeded', SUCCESS: 'succeeded',
    IGNORE_FAILED: 'failure ignored', SKIPPED: 'skipped', FAILED: 'failed', FAILURE: 'failed', ERRORED: 'could not run',
    APPROVAL_REJECTED: 'rejected', EXPIRED: 'timed out', TIMEOUT: 'timed out', ABORTED: 'aborted', ALIVE: 'alive', DRAINING: 'draining', LOST: 'lost',
  },

  runs: {
    title: 'Runs', status: 'Status', pipeline: 'Pipeline', branch: 'Branch', text: 'Search', label: 'Label', labelHint: 'name=value', any: 'any',
    run: 'Run', started: 'Started', duration: 'Duration', reason: 'Reason', by: 'By', empty: 'There are no runs yet.',
    emptyHint: 'Start one with POST /api/runs, or by a trigger.', noMatch: 'No run matches the filters.', list: 'Runs, newest first',
  },
  cause: { MANUAL: 'by hand', WEBHOOK: 'by a webhook', WEBHOOK_CUSTOM: 'by a custom webhook', SCHEDULER_CRON: 'by a schedule' },

  run: {
    title: (/** @type {string} */ name, /** @type {number} */ n) => `${name} #${n}`,
    abort: 'Abort', retry: 'Retry', retryHere: 'Retry from here', again: 'Run again', approve: 'Approve', reject: 'Reject', answer: 'Answer',
    stages: 'Stages', steps: 'Steps', logs: 'All logs', details: 'Details', log: 'Log', timeline: 'Timeline', expressions: 'Expressions', yaml: 'YAML', inputs: 'Inputs', inputsGiven: 'At the start', inputsAsked: 'While the run was running', notGiven: 'not answered yet', noInputs: 'The run has no inputs.', parts: 'Parts of the run',
    views: 'Views of the run', panel: 'Views of the part', choose: 'Choose a part of the run to see its log and the reason of its status.', nothing: 'Nothing has started yet.',
    noLog: 'This part has no log: the steps below it have.', noStart: 'The step has not started, so it has no log.',
    fail: 'Mark as failed', failTitle: 'Mark the step as failed?', failText: 'The step is ended. Its failure strategies decide what follows.',
    largeArtifact: (/** @type {number} */ n) => `The artifact file has ${n.toLocaleString('en')} bytes, which is too large for the run. The stage at the manager has it.`,
    results: 'Tests and artifacts', noResults: 'No step has reported tests or artifacts.', moreTests: (/** @type {number} */ n) => `${n.toLocaleString('en')} more: the stage at the manager, and the reports, have them.`,
    testSum: (/** @type {any} */ s) => [many(s.total || 0, 'test', 'tests'), s.failed ? `${s.failed} failed` : '', s.errors ? many(s.errors, 'error', 'errors') : '', `${s.passed || 0} passed`, s.skipped ? `${s.skipped} skipped` : ''].filter(Boolean).join(' · '),
    tests: 'Tests', artifact: 'Artifacts', reason: 'Reason', values: 'Values that decided', outputs: 'Outputs', attempts: 'Earlier attempts', attempt: 'Attempt', matrix: 'Matrix', kind: 'Kind of failure',
    exit: 'Exit code', path: 'Path', type: 'Type', began: 'Started', finished: 'Ended', stageId: 'Stage at the manager', evaluated: 'Expressions',
    field: 'Field', text: 'Expression', value: 'Value', source: 'From', error: 'Error', name: 'Name', status: 'Status', written: 'As written', ran: 'As it ran', noExpressions: 'No expression was evaluated.',
    abortTitle: 'Abort this?', abortRun: 'All running steps stop. Cleanups still run.', why: 'Reason', aborting: 'Abort', cancel: 'Cancel',
    retryTitle: 'Retry from this stage?', retryText: 'The stage runs again, and all stages after it. Earlier stages keep their results.',
    againTitle: 'Run again?', againText: 'A new run starts with the same definition and inputs.',
    answerTitle: 'This part waits for an answer', action: 'Action', comment: 'Comment', send: 'Send', missing: 'There is no such run.', by: 'by',
    queuedFor: 'waits for a delegate', count: (/** @type {number} */ n) => many(n, 'part', 'parts'), stageCells: 'Cells of the matrix',
  },

  stages: {
    list: 'Stages, newest first', empty: 'There are no stages yet.', noMatch: 'No stage matches the filters.', missing: 'The manager knows no such stage, or has forgotten it.',
    waits: (/** @type {number} */ place, /** @type {string} */ why) => [place ? `place ${place}` : '', why].filter(Boolean).join(': '),
    count: (/** @type {number} */ n) => many(n, 'stage', 'stages'), parts: { queue: 'Queue', init: 'Prepare', clone: 'Clone', cleanup: 'Clean up' },
  },

  queue: {
    waiting: 'Waiting', running: 'Running', oldest: 'Oldest wait', needs: 'Why stages wait', groups: 'By account, pipeline and label', stages: 'Waiting stages', empty: 'Nothing waits.',
    selectors: 'Needs tags', why: 'Reason', group: 'Group', limit: 'Limit', any: 'any delegate', used: (/** @type {number} */ n, /** @type {number} */ max) => `${n} of ${max}`,
    pause: 'Pause', resume: 'Resume', paused: 'The account is paused: stages wait.', pausedWith: (/** @type {string} */ note) => `The account is paused: ${note}`, pauseTitle: 'Pause the account?',
    pauseText: 'Submissions wait. Running stages continue.', note: 'Note', pick: (/** @type {string} */ id) => `Select ${id}`,
    abort: (/** @type {number} */ n) => `Abort ${many(n, 'stage', 'stages')}`, abortNone: 'Abort', pickFirst: 'Select the stages to abort in the list first.', done: 'done',
  },

  delegates: {
    state: 'State', name: 'Delegate', tags: 'Tags', slots: 'Slots', runs: 'Runs now', heard: 'Last heartbeat', actions: 'Actions', drain: 'Drain', resume: 'Resume',
    empty: 'No delegate has registered.', emptyHint: 'A delegate needs the address of the manager, the account and its secret.', group: (/** @type {string} */ g) => `group ${g}`,
    used: (/** @type {number} */ n, /** @type {number} */ max) => max ? `${n} of ${max}` : `${n}`,
    refused: (/** @type {string} */ what, /** @type {number} */ load, /** @type {number} */ limit) => `Refused a stage: ${what} at ${load} %, limit ${limit} %`, resources: { cpu: 'CPU', memory: 'memory' },
    history: 'History', when: 'Time', what: 'Change', version: 'Version',
    kinds: { registered: 'registered', lost: 'lost', returned: 'back', drained: 'drain began', resumed: 'drain ended', upgraded: 'another version' },
  },

  schedules: { id: 'Schedule', cron: 'Times', next: 'Next', last: 'Last', paused: 'paused', trigger: 'Run now', pause: 'Pause', resume: 'Resume', empty: 'There are no schedules.', hint: 'PUT /api/schedules/ID adds one.' },
  triggers: { id: 'Trigger', kind: 'Starts by', pipeline: 'Pipeline', next: 'Next', last: 'Last', disabled: 'disabled', empty: 'There are no triggers.', hint: 'PUT /api/triggers/ID adds one.' },
  limits: {
    group: 'Group', used: 'Running', max: 'Limit', change: 'Change', add: 'Add a limit', set: 'Set', full: 'full', empty: 'There are no limits.', hint: 'A limit bounds how many stages of a group run at a time.',
    help: 'Groups are account, pipeline:NAME and label:NAME=VALUE. 0 removes the limit.',
  },

  perpetual: {
    title: 'Perpetual tasks', id: 'Task', holder: 'Runs on', last: 'Last run', next: 'Next run', run: 'Run now', pause: 'Pause', resume: 'Resume', paused: 'paused', since: 'since', note: 'Note',
    empty: 'There are no perpetual tasks.', hint: 'PUT /api/perpetual/ID adds one.', pauseTitle: 'Pause the task?', pauseText: 'The delegate cancels its run, and no delegate gets the task.',
    every: (/** @type {string} */ s) => `every ${s}`, loop: 'again and again',
    runs: (/** @type {number} */ n, /** @type {number} */ failed) => many(n, 'run', 'runs') + (failed ? `, ${failed.toLocaleString('en')} failed` : ''),
    failures: (/** @type {number} */ n, /** @type {string} */ why) => `${many(n, 'failure', 'failures')} since the last success: ${why}`, events: (/** @type {number} */ n) => `${many(n, 'event waits', 'events wait')} for a consumer`,
  },
  daemons: {
    title: 'Daemon sets', id: 'Daemon set', tags: 'Needs tags', tasks: 'Tasks', healthy: 'Healthy', all: 'all delegates', hold: 'on hold: delegates change nothing', empty: 'There are no daemon sets.', hint: 'PUT /api/daemon-sets/ID adds one.',
    of: (/** @type {number} */ n, /** @type {number} */ all) => `${n} of ${all}`, delegates: 'Delegates', name: 'Delegate', state: 'State', reported: 'Reported', ok: 'healthy', bad: 'not healthy', silent: 'no report yet', more: (/** @type {number} */ n) => `${n.toLocaleString('en')} more: dlite daemons show lists all.`,
  },
  connectors: {
    id: 'Connector', kind: 'Kind', address: 'Address', tags: 'Tested from tags', updated: 'Changed', test: 'Test', any: 'any delegate', preset: 'default of the kind', empty: 'There are no connectors.', hint: 'PUT /api/connectors/ID adds one.',
    testing: (/** @type {string} */ id) => `Testing ${id}…`, works: (/** @type {string} */ id) => `${id} works.`, fails: (/** @type {string} */ id) => `${id} does not work.`, ok: 'ok', failed: 'failed',
  },
  upgrades: {
    title: 'Update of the delegates', version: 'Version', progress: 'Progress', away: 'Away', failed: 'Failed', versions: 'Delegates by version', pause: 'Pause', resume: 'Continue', update: 'the update', empty: 'There is no update.', hint: 'dlite upgrades set VERSION begins one.',
    states: { running: 'running', paused: 'paused', stopped: 'stopped after failures' }, returned: (/** @type {number} */ n) => many(n, 'delegate has returned', 'delegates have returned'),
    rule: (/** @type {string} */ share, /** @type {number} */ failures, /** @type {string} */ within) => `${share} at a time, back within ${within}, stops after ${many(failures, 'failure', 'failures')}`,
  },

  log: {
    waiting: 'Waiting for the first line…', none: 'The log is empty.', missing: 'There is no log, or it was removed.', tools: 'Tools of the log', search: 'Search the log',
    previous: 'Previous hit', next: 'Next hit', noHits: 'no hits', follow: 'Follow', timestamps: 'Timestamps', firstError: 'First error', noError: 'No line of the log looks like an error.', download: 'Download',
    cut: '… the line is longer: download the log to see it',
    hits: (/** @type {number} */ n, /** @type {boolean} */ more) => many(n, 'line', 'lines') + (more ? ' or more' : ''),
    hit: (/** @type {number} */ i, /** @type {number} */ n, /** @type {boolean} */ more) => `${i} of ${n.toLocaleString('en')}${more ? ' or more' : ''}`,
    line: (/** @type {number} */ n) => `Line ${n}`, lines: (/** @type {number} */ n) => many(n, 'line', 'lines'),
    dropped: (/** @type {number} */ n) => `the first ${n.toLocaleString('en')} are only in the download`,
    state: { live: 'live', lost: 'connection lost, trying again', ended: 'complete', failed: 'not available', loading: 'loading' },
  },
};
