package manager

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/perpetual"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// The saved state consists of a head, the stages, the single tasks, the schedules,
// the connectors, the daemon sets and the queue. Each record but the queue is a length and as many bytes of JSON.

// saved is the version of this format.
const saved = 1

type savedHead struct {
	Version  int      `json:"version"`
	Settings settings `json:"settings"`
	Order    uint64   `json:"order"`
	Stages   int      `json:"stages"`
	Tasks    int      `json:"tasks"`
	// Schedules is the number of schedules.
	Schedules int `json:"schedules"`
	// Connectors is the number of connectors. It is absent from the state of rules 6 and below.
	Connectors int    `json:"connectors,omitempty"`
	Leader     leader `json:"leader,omitzero"`
	// Perpetual is the state of perpetual tasks without the tasks, nil if there never was one.
	// PerpetualTasks is their number.
	Perpetual      *perpetual.Saved `json:"perpetual,omitempty"`
	PerpetualTasks int              `json:"perpetual_tasks,omitempty"`
	// Daemons is the number of accounts with daemon sets. It is absent from the state of rules 6 and below.
	Daemons int `json:"daemons,omitempty"`
	// Rollouts maps accounts to the updates of their delegates.
	Rollouts map[string]*rollout `json:"rollouts,omitempty"`
	// Events maps accounts to the ids of their newest events.
	Events map[string]uint64 `json:"events,omitempty"`
	// Ends maps accounts to the numbers of the stages that ended last.
	Ends map[string]uint64 `json:"ends,omitempty"`
}

type savedSchedule struct {
	Account string `json:"account"`
	api.Schedule
}

type savedConnector struct {
	Account string `json:"account"`
	api.Connector
}

type savedDaemons struct {
	Account string `json:"account"`
	*daemons
}

type savedTask struct {
	Account string `json:"account"`
	ID      string `json:"id"`
	single
}

// savedRun is the JSON form of a run, in commands and in the saved state.
type savedRun struct {
	Stage        api.Stage        `json:"stage"`
	Account      string           `json:"account"`
	Order        uint64           `json:"order,omitempty"`
	End          uint64           `json:"end,omitempty"`
	Digest       string           `json:"digest"`
	Parts        []savedPart      `json:"parts"` // init, steps, cleanup
	Timeout      task.Millis      `json:"timeout,omitempty"`
	QueueTimeout time.Duration    `json:"queue_timeout,omitempty"`
	Current      int              `json:"current"` // index in Parts; -1 is none
	Next         int              `json:"next"`
	Stopping     api.Status       `json:"stopping,omitempty"`
	Failed       api.Status       `json:"failed,omitempty"`
	Variant      int              `json:"variant"`
	Groups       []string         `json:"groups,omitempty"`
	Retry        *api.Retry       `json:"retry,omitempty"`
	Lost         bool             `json:"lost,omitempty"`
	Log          *stage.LogConfig `json:"log,omitempty"`
	Trace        tracing          `json:"trace,omitzero"`
	Size         int              `json:"size,omitempty"`
	Held         *savedHeld       `json:"held,omitempty"`
}

// savedHeld is the JSON form of held.
type savedHeld struct {
	Group   string        `json:"group"`
	Network string        `json:"network"`
	Lease   time.Duration `json:"lease"`
	Closed  string        `json:"closed,omitempty"`
	// Appended is the number of appended steps, the last ones of the stage.
	Appended int `json:"appended,omitempty"`
}

// savedPart holds the fields of a part that [api.StepState] does not have.
type savedPart struct {
	Data    json.RawMessage `json:"data,omitempty"`
	Packed  []byte          `json:"packed,omitempty"` // instead of Data
	Timeout task.Millis     `json:"timeout,omitempty"`
	RunOn   string          `json:"run_on,omitempty"`
	Digest  string          `json:"digest,omitempty"`
	// First and FirstLog are the ids in the first attempt, if they differ.
	First    string `json:"first,omitempty"`
	FirstLog string `json:"first_log,omitempty"`
}

// parts iterates over the parts of the run: init, steps, appended steps, cleanup.
func (n *run) parts(yield func(int, *step) bool) {
	if !yield(0, &n.init) {
		return
	}
	for i := range n.steps {
		if !yield(i+1, &n.steps[i]) {
			return
		}
	}
	if n.held != nil {
		for i, p := range n.held.appended {
			if !yield(len(n.steps)+i+1, p) {
				return
			}
		}
	}
	yield(n.stepCount()+1, &n.cleanup)
}

// MarshalJSON returns the complete run.
func (n *run) MarshalJSON() ([]byte, error) {
	s := savedRun{
		Stage: n.Stage, Account: n.account, Order: n.order, End: n.end, Digest: n.digest, Timeout: n.timeout,
		QueueTimeout: n.queueTimeout, Current: -1, Next: n.next, Stopping: n.stopping, Failed: n.failed,
		Variant: n.variant, Trace: n.Trace, Groups: n.groups, Retry: n.Retry, Lost: n.lost, Log: n.log, Size: n.size, Parts: make([]savedPart, 0, n.stepCount()+2),
	}
	if h := n.held; h != nil {
		s.Held = &savedHeld{Group: h.ids.group, Network: h.ids.network, Lease: h.lease, Closed: h.closed, Appended: len(h.appended)}
	}
	s.Stage.StartedAt = n.Started
	s.Stage.Init, s.Stage.Cleanup = n.init.StepState, n.cleanup.StepState
	for i, p := range n.parts {
		if p == n.current {
			s.Current = i
		}
		if p.kind == taskkind.Execute {
			s.Stage.Steps = append(s.Stage.Steps, p.StepState)
		}
		part := savedPart{Data: p.data.text, Packed: p.data.small, Timeout: p.timeout, RunOn: p.runOn, Digest: p.digest}
		if len(n.Attempts) > 0 {
			part.First, part.FirstLog = p.first, p.firstLog
		}
		s.Parts = append(s.Parts, part)
	}
	return json.Marshal(s)
}

// UnmarshalJSON parses the output of MarshalJSON.
func (n *run) UnmarshalJSON(b []byte) error {
	var s savedRun
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if len(s.Parts) != len(s.Stage.Steps)+2 || s.Current >= len(s.Parts) || infra(s.Stage.Infra) == nil ||
		s.Held != nil && (s.Held.Appended < 0 || s.Held.Appended > len(s.Stage.Steps)) {
		return fmt.Errorf("stage %q is damaged", s.Stage.ID)
	}
	*n = run{
		Stage: s.Stage, account: s.Account, order: s.Order, end: s.End, digest: s.Digest, timeout: s.Timeout,
		queueTimeout: s.QueueTimeout, next: s.Next, stopping: s.Stopping, failed: s.Failed, variant: s.Variant,
		lifecycle: lifecycle{Trace: s.Trace, Started: s.Stage.StartedAt, Retry: s.Retry},
		groups:    s.Groups, lost: s.Lost, log: s.Log, size: s.Size,
		kinds: infra(s.Stage.Infra), done: make(chan struct{}),
		init:    step{StepState: s.Stage.Init, kind: taskkind.Init},
		cleanup: step{StepState: s.Stage.Cleanup, kind: taskkind.Cleanup},
	}
	inOrder := s.Stage.Steps
	if s.Held != nil {
		inOrder = n.loadHeld(s.Held, s.Stage.Steps)
	}
	for _, state := range inOrder {
		n.steps = append(n.steps, step{StepState: state, kind: taskkind.Execute})
	}
	n.StartedAt, n.Init, n.Steps, n.Cleanup = time.Time{}, api.StepState{}, nil, api.StepState{}
	for i, p := range n.parts {
		saved := &s.Parts[i]
		p.data, p.timeout, p.runOn = packed{saved.Data, saved.Packed}, saved.Timeout, saved.RunOn
		p.digest = saved.Digest
		p.first, p.firstLog = cmp.Or(saved.First, p.TaskID), cmp.Or(saved.FirstLog, p.LogKey)
		if i == s.Current {
			n.current = p
		}
	}
	n.indexSteps()
	if n.Status.Ended() {
		close(n.done)
	}
	return nil
}

// loadHeld restores the held part of a run. It returns the steps that were not appended.
func (n *run) loadHeld(s *savedHeld, all []api.StepState) []api.StepState {
	n.held = newHeld(&api.Hold{LeaseMS: s.Lease.Milliseconds()})
	n.held.ids, n.held.closed = stageIDs{group: s.Group, network: s.Network}, s.Closed
	first := len(all) - s.Appended
	for _, state := range all[first:] {
		p := &step{StepState: state, kind: taskkind.Execute}
		n.held.appended = append(n.held.appended, p)
		if n.init.Status == api.Success && !p.Status.Ended() {
			n.held.sent[p.TaskID] = p
		}
	}
	return all[:first]
}

// Save writes the state.
func (c *core) Save(to io.Writer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := bufio.NewWriter(to)
	head := savedHead{
		Version: saved, Settings: c.set, Order: c.order, Stages: len(c.stages), Tasks: len(c.tasks), Schedules: len(c.schedules), Connectors: len(c.connectors), Daemons: len(c.daemons), Leader: c.leader, Rollouts: c.rollouts, Events: map[string]uint64{}, Ends: map[string]uint64{},
	}
	for account, f := range c.feeds {
		if f.last > 0 { // asking for events creates empty feeds
			head.Events[account] = f.last
		}
	}
	for account, e := range c.endings {
		head.Ends[account] = e.last
	}
	var perpetualTasks []perpetual.SavedTask
	if !c.perpetual.Empty() {
		var set perpetual.Saved
		set, perpetualTasks = c.perpetual.Save()
		head.Perpetual, head.PerpetualTasks = &set, len(perpetualTasks)
	}
	if err := writeRecord(w, head); err != nil {
		return err
	}
	for _, n := range slices.SortedFunc(maps.Values(c.stages), func(a, b *run) int { return cmp.Compare(a.order, b.order) }) {
		if err := writeRecord(w, n); err != nil {
			return err
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.tasks), key.compare) {
		if err := writeRecord(w, savedTask{k.account, k.id, *c.tasks[k]}); err != nil {
			return err
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.schedules), key.compare) {
		if err := writeRecord(w, savedSchedule{k.account, *c.schedules[k]}); err != nil {
			return err
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.connectors), key.compare) {
		if err := writeRecord(w, savedConnector{k.account, *c.connectors[k]}); err != nil {
			return err
		}
	}
	for _, t := range perpetualTasks {
		if err := writeRecord(w, t); err != nil {
			return err
		}
	}
	for _, account := range slices.Sorted(maps.Keys(c.daemons)) {
		if err := writeRecord(w, savedDaemons{account, c.daemons[account]}); err != nil {
			return err
		}
	}
	if err := c.queue.Save(w); err != nil {
		return err
	}
	return w.Flush()
}

// Load replaces the state by one that Save has written. Waiting calls read the new
// state.
func (c *core) Load(from io.Reader) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := bufio.NewReader(from)
	var head savedHead
	if err := readRecord(r, &head); err != nil {
		return fmt.Errorf("reading the saved state: %w", err)
	}
	if head.Version != saved {
		return fmt.Errorf("the saved state has version %d, this program knows %d: run the version that wrote it", head.Version, saved)
	}
	stages, tasks := make(map[key]*run, head.Stages), make(map[key]*single, head.Tasks)
	inOrder := map[string][]*run{}
	for range head.Stages {
		n := &run{}
		if err := readRecord(r, n); err != nil {
			return fmt.Errorf("reading a saved stage: %w", err)
		}
		stages[key{n.account, n.ID}] = n
		inOrder[n.account] = append(inOrder[n.account], n) // they were saved in their order
	}
	attempts := map[key]string{}
	for range head.Tasks {
		var t savedTask
		if err := readRecord(r, &t); err != nil {
			return fmt.Errorf("reading a saved task: %w", err)
		}
		tasks[key{t.Account, t.ID}] = &t.single
		if t.isRetried() {
			attempts[key{t.Account, t.Current}] = t.ID
		}
	}
	schedules := make(map[key]*api.Schedule, head.Schedules)
	for range head.Schedules {
		var s savedSchedule
		if err := readRecord(r, &s); err != nil {
			return fmt.Errorf("reading a saved schedule: %w", err)
		}
		schedules[key{s.Account, s.ID}] = &s.Schedule
	}
	connectors := make(map[key]*api.Connector, head.Connectors)
	for range head.Connectors {
		var s savedConnector
		if err := readRecord(r, &s); err != nil {
			return fmt.Errorf("reading a saved connector: %w", err)
		}
		connectors[key{s.Account, s.ID}] = &s.Connector
	}
	perpetualTasks := make([]perpetual.SavedTask, head.PerpetualTasks)
	for i := range perpetualTasks {
		if err := readRecord(r, &perpetualTasks[i]); err != nil {
			return fmt.Errorf("reading a saved perpetual task: %w", err)
		}
	}
	sets := make(map[string]*daemons, head.Daemons)
	for range head.Daemons {
		s := savedDaemons{daemons: &daemons{}}
		if err := readRecord(r, &s); err != nil {
			return fmt.Errorf("reading saved daemon sets: %w", err)
		}
		s.load()
		sets[s.Account] = s.daemons
	}
	usage := newCore(true)
	for k, n := range stages {
		if n.isOpen() {
			usage.opened(k.account, 1)
		}
	}
	for k, n := range stages {
		if !n.Status.Ended() {
			usage.occupy(k.account, workAmounts(n.size), 1)
		}
	}
	for k, t := range tasks {
		if t.Size > 0 {
			usage.occupy(k.account, workAmounts(t.Size), 1)
		}
	}
	for k := range schedules {
		usage.occupy(k.account, amounts{budgetSchedules: 1}, 1)
	}
	for _, t := range perpetualTasks {
		usage.occupy(t.Account, amounts{budgetPerpetual: 1}, 1)
	}
	for account, d := range sets {
		for _, s := range d.Sets {
			usage.occupy(account, daemonAmounts(sizeOfJSON(s.DaemonSet)), 1)
			for _, t := range s.Tasks {
				usage.occupy(account, daemonAmounts(sizeOfJSON(t)), 1)
			}
		}
	}
	c.queue.Configure(head.Settings.queue(nil))
	if err := c.queue.Load(r); err != nil {
		return err
	}
	var set perpetual.Saved
	if head.Perpetual != nil {
		set = *head.Perpetual
	}
	c.perpetual.Configure(perpetual.Config{Lease: head.Settings.PerpetualLease, Gap: head.Settings.Gap})
	if err := c.perpetual.Load(set, perpetualTasks); err != nil {
		return err
	}
	for _, n := range c.stages {
		if !n.Status.Ended() {
			close(n.done)
		}
	}
	for _, f := range c.feeds {
		f.wake()
	}
	for account := range c.daemons {
		c.moveDaemons(account)
	}
	c.daemons = sets
	close(c.firstDaemons)
	c.firstDaemons = make(chan struct{})
	c.feeds = map[string]*feed{}
	for account, last := range head.Events {
		c.feeds[account] = &feed{last: last}
	}
	c.stages, c.tasks, c.attempts, c.schedules, c.order, c.set, c.leader = stages, tasks, attempts, schedules, head.Order, head.Settings, head.Leader
	c.connectors = connectors
	c.rollouts = head.Rollouts
	if c.rollouts == nil {
		c.rollouts = map[string]*rollout{}
	}
	c.inOrder, c.forgotten, c.endings = inOrder, map[string]int{}, loadEndings(head.Ends, inOrder)
	c.usage, c.usageSum, c.open = usage.usage, usage.usageSum, usage.open
	c.wakeLoop()
	return nil
}

// maxRecord is far larger than any stage.
const maxRecord = 1 << 31

func writeRecord(w *bufio.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := w.Write(binary.AppendUvarint(w.AvailableBuffer(), uint64(len(b)))); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func readRecord(r *bufio.Reader, v any) error {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	if n > maxRecord {
		return errors.New("a record has an impossible length")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
