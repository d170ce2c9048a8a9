package manager

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// checkDaemonSet checks the values of a daemon set.
func checkDaemonSet(s *api.DaemonSet) error {
	if s.ID == "" || s.Type == "" {
		return fmt.Errorf("%w: id or type is missing: a daemon set needs both", ErrInvalid)
	}
	config := s.Config
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(config, &object) != nil || object == nil {
		return fmt.Errorf("%w: config must be an object", ErrInvalid)
	}
	return firstError(
		checkID("id", s.ID),
		checkSize("type", len(s.Type), maxName),
		checkSize("config", len(s.Config), maxDaemonPayload),
		checkNames("selectors", s.Selectors),
		checkSecretTasks(s.Secrets),
	)
}

// checkDaemonTask checks the values of a task of a daemon set.
func checkDaemonTask(t *api.DaemonTask) error {
	switch {
	case t.ID == "":
		return fmt.Errorf("%w: id is missing: a task needs one", ErrInvalid)
	case len(t.Data) > 0 && len(t.Binary) > 0:
		return fmt.Errorf("%w: data and binary are set: a task has one of them", ErrInvalid)
	}
	return firstError(
		checkID("id", t.ID),
		checkSize("data", len(t.Data), maxDaemonPayload),
		checkSize("binary", len(t.Binary), maxDaemonPayload),
		checkNames("selectors", t.Selectors),
		checkOneOf("spread", t.Spread, spreadAll, spreadOne),
		checkSecretTasks(t.Secrets),
	)
}

func checkSecretTasks(list []json.RawMessage) error {
	if err := checkCount("secrets", len(list), maxNames); err != nil {
		return err
	}
	tasks, err := secretTasks(list)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for i, t := range tasks {
		if t.ID == "" || t.Type == "" {
			return fmt.Errorf("%w: secrets[%d] has no id or no type", ErrInvalid, i)
		}
		if err := checkSize(fmt.Sprintf("secrets[%d]", i), len(list[i]), maxDaemonPayload/16); err != nil {
			return err
		}
	}
	return nil
}

func secretTasks(list []json.RawMessage) ([]*task.Task, error) {
	var out []*task.Task
	for i, b := range list {
		t := &task.Task{}
		if string(b) == "null" || t.UnmarshalJSON(b) != nil {
			return nil, fmt.Errorf("secrets[%d] is not a task", i)
		}
		out = append(out, t)
	}
	return out, nil
}

// daemonSetView returns a daemon set with its tasks and delegates. The caller holds the core's lock.
func (c *core) daemonSetView(account string, s *daemonSet, p *daemonPlan) api.DaemonSet {
	out := s.DaemonSet
	for _, id := range slices.Sorted(maps.Keys(s.Tasks)) {
		t := *s.Tasks[id]
		t.Data, t.Binary, t.Secrets = nil, nil, nil
		out.Tasks = append(out.Tasks, t)
	}
	for i := range p.delegates {
		q := &p.delegates[i]
		state := api.DaemonState{DelegateID: q.ID, DelegateName: q.Name, TaskIDs: emptyIfNil(p.tasks[q.ID][s.ID])}
		if other, ok := p.shadowed[q.ID][s.ID]; ok {
			state.Error = fmt.Sprintf("the delegate runs daemon set %q, which has the same type: choose other selectors or another type", other)
		} else if !slices.Contains(p.runs[q.ID], s) {
			continue
		} else if r, ok := c.daemons[account].Reports[q.ID][s.ID]; ok {
			state.Healthy, state.Error, state.ReportedAt = r.Healthy && q.State != queue.Gone, r.Error, r.At
			if q.State == queue.Gone {
				state.Error = "the delegate is lost"
			}
		}
		out.Delegates = append(out.Delegates, state)
	}
	return out
}

// daemonSets returns the daemon sets of an account, ordered by id. An id selects one.
func (m *Manager) daemonSets(account, id string) []api.DaemonSet {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	out, d := []api.DaemonSet{}, c.daemons[account]
	if d == nil {
		return out
	}
	p := c.planDaemons(account, m.cfg.Clock.Now())
	for _, k := range slices.Sorted(maps.Keys(d.Sets)) {
		if id == "" || k == id {
			out = append(out, c.daemonSetView(account, d.Sets[k], p))
		}
	}
	return out
}

// countDaemons returns the numbers of daemons on delegates that are not lost, and of tasks.
func (m *Manager) countDaemons(account string) (healthy, unhealthy, tasks int) {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.daemons[account]
	if d == nil {
		return 0, 0, 0
	}
	p := c.planDaemons(account, m.cfg.Clock.Now())
	for i := range p.delegates {
		q := &p.delegates[i]
		for _, s := range p.runs[q.ID] {
			switch {
			case q.State == queue.Gone:
			case d.Reports[q.ID][s.ID].Healthy:
				healthy++
			default:
				unhealthy++
			}
		}
	}
	return healthy, unhealthy, len(d.owners)
}

func (m *Manager) listDaemonSets(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		DaemonSets []api.DaemonSet `json:"daemon_sets"`
	}{m.daemonSets(account(r), "")})
}

func (m *Manager) showDaemonSet(w http.ResponseWriter, r *http.Request) {
	id := pathParam(r, "id")
	found := m.daemonSets(account(r), id)
	if len(found) == 0 && m.journal.Sync(r.Context()) == nil {
		found = m.daemonSets(account(r), id)
	}
	if len(found) == 0 {
		writeError(w, fmt.Errorf("daemon set %q: %w", id, ErrNotFound))
		return
	}
	writeJSON(w, http.StatusOK, found[0])
}

func (m *Manager) putDaemonSet(w http.ResponseWriter, r *http.Request) {
	var s api.DaemonSet
	id := pathParam(r, "id")
	if !m.decodeNamed(w, r, &s, &s.ID, "daemon set", id, knownShapes().daemonSet) {
		return
	}
	s.Tasks, s.Delegates, s.UpdatedAt = nil, nil, time.Time{}
	if err := checkDaemonSet(&s); err != nil {
		writeError(w, err)
		return
	}
	exists := len(m.daemonSets(account(r), id)) > 0
	need := amounts{budgetBytes: sizeOfJSON(s)}
	if !exists {
		need[budgetDaemons] = 1
	}
	if err := m.applyDaemons(r.Context(), account(r), need, &command{Account: account(r), SetDaemonSet: &s}); err != nil {
		writeError(w, err)
		return
	}
	m.showDaemonSet(w, r)
}

// applyDaemons executes a command that adds to the state.
func (m *Manager) applyDaemons(ctx context.Context, account string, need amounts, cmd *command) error {
	release, err := m.budgets.take(account, need)
	if err != nil {
		return err
	}
	defer release()
	_, err = m.applyCommand(ctx, cmd)
	return err
}

func (m *Manager) deleteDaemonSet(w http.ResponseWriter, r *http.Request) {
	_, err := m.applyCommand(r.Context(), &command{Account: account(r), DeleteDaemonSet: &idCommand{pathParam(r, "id")}})
	replyEmpty(w, err)
}

func (m *Manager) putDaemonTask(w http.ResponseWriter, r *http.Request) {
	var t api.DaemonTask
	if !m.decodeNamed(w, r, &t, &t.ID, "task", pathParam(r, "task"), knownShapes().daemonTask) {
		return
	}
	t.Spread = cmp.Or(t.Spread, spreadAll)
	if err := checkDaemonTask(&t); err != nil {
		writeError(w, err)
		return
	}
	if err := m.applyDaemons(r.Context(), account(r), daemonAmounts(sizeOfJSON(t)),
		&command{Account: account(r), SetDaemonTask: &daemonTaskCommand{Set: pathParam(r, "id"), Task: t}}); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, t)
}

func (m *Manager) deleteDaemonTask(w http.ResponseWriter, r *http.Request) {
	cmd := &dropDaemonTaskCommand{Set: pathParam(r, "id"), ID: pathParam(r, "task")}
	_, err := m.applyCommand(r.Context(), &command{Account: account(r), DeleteDaemonTask: cmd})
	replyEmpty(w, err)
}

// daemonSetAnswer is the wire form of a daemon set for a delegate. Other delegates decode lists that are never null.
type daemonSetAnswer struct {
	ID         string          `json:"daemon_set_id"`
	Config     json.RawMessage `json:"config"`
	SkipUpdate bool            `json:"skip_update"`
	TaskIDs    []string        `json:"task_ids"`
	Type       string          `json:"type"`
	Secrets    []any           `json:"secrets,omitempty"`
}

// daemonAnswer returns the daemon sets of a delegate, and a channel that is closed when they may have changed. Without
// any daemon set in the account the channel is nil, and create makes the state so that there is one.
func (m *Manager) daemonAnswer(account, delegate string) (out []daemonSetAnswer, moved <-chan struct{}, err error) {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	out = []daemonSetAnswer{}
	d := c.daemons[account]
	if d == nil {
		return out, c.firstDaemons, nil
	}
	p := c.planDaemons(account, m.cfg.Clock.Now())
	for _, s := range p.runs[delegate] {
		a := daemonSetAnswer{ID: s.ID, Config: s.Config, SkipUpdate: s.Hold, TaskIDs: emptyIfNil(p.tasks[delegate][s.ID]), Type: s.Type}
		if len(a.Config) == 0 {
			a.Config = json.RawMessage("{}")
		}
		tasks, err := secretTasks(s.Secrets)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range tasks {
			secret, err := runnerTask(t)
			if err != nil {
				return nil, nil, err
			}
			a.Secrets = append(a.Secrets, secret)
		}
		out = append(out, a)
	}
	return out, d.moved, nil
}

// daemonHold is how often a held report looks for changes of the tags of delegates.
const daemonHold = planAge

// reconcileDaemons stores the report of a delegate about its daemon sets, and answers with the daemon sets that it must
// run. If the call has a wait, it holds the answer until it differs from the answer that the cursor names.
func (m *Manager) reconcileDaemons(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Data []struct {
			ID      string `json:"daemon_set_id"`
			Healthy bool   `json:"healthy"`
			Error   string `json:"error"`
		} `json:"data"`
	}
	if _, ok := m.readAndDecode(w, r, &in, taskBounds); !ok {
		return
	}
	wait, given, ok := m.waitParam(w, r)
	if !ok {
		return
	}
	owner, delegate := account(r), pathParam(r, "delegate")
	if err := checkCount("data", len(in.Data), maxNames); err != nil {
		writeError(w, err)
		return
	}
	if !m.knowsDelegate(owner, delegate) && (m.journal.Sync(r.Context()) != nil || !m.knowsDelegate(owner, delegate)) {
		writeError(w, queue.ErrUnknownDelegate)
		return
	}
	report := map[string]daemonReport{}
	for _, e := range in.Data {
		report[e.ID] = daemonReport{Healthy: e.Healthy, Error: cut(e.Error, maxDaemonError)}
	}
	if err := m.storeDaemonReport(r.Context(), owner, delegate, report); err != nil {
		writeError(w, err)
		return
	}
	m.holdDaemons(w, r, delegate, wait, given)
}

// storeDaemonReport stores a report, if it differs from the previous one.
func (m *Manager) storeDaemonReport(ctx context.Context, account, delegate string, report map[string]daemonReport) error {
	m.core.mu.Lock()
	d := m.core.daemons[account]
	known := d == nil || d.reported(delegate, report)
	m.core.mu.Unlock()
	if known {
		return nil
	}
	_, err := m.applyCommand(ctx, &command{Account: account, ReportDaemons: &daemonReportCommand{Delegate: delegate, Sets: report}})
	return err
}

func (m *Manager) holdDaemons(w http.ResponseWriter, r *http.Request, delegate string, wait time.Duration, given bool) {
	since := r.URL.Query().Get("since")
	var over <-chan time.Time
	for {
		sets, moved, err := m.daemonAnswer(account(r), delegate)
		var body []byte
		if err == nil {
			body, err = json.Marshal(struct {
				Data []daemonSetAnswer `json:"data"`
			}{sets})
		}
		if err != nil {
			writeStatus(w, http.StatusInternalServerError, err.Error())
			return
		}
		sum := sha256.Sum256(body)
		cursor := hex.EncodeToString(sum[:12])
		if given && wait > 0 && cursor == since {
			if over == nil {
				release, err := m.budgets.take(account(r), amounts{budgetHolds: 1})
				if err != nil { // without the header the delegate pauses before its next report
					given, wait = false, 0
					continue
				}
				defer release()
				var stop func()
				over, stop = m.after(wait)
				defer stop()
			}
			again, stop := m.after(daemonHold)
			held := true
			select {
			case <-moved:
			case <-again:
			case <-over:
				wait = 0
			case <-r.Context().Done():
				held = false
			case <-m.closing:
				given = false
			}
			stop()
			if !held {
				return
			}
			continue
		}
		if given {
			w.Header().Set(cursorHeader, cursor)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the delegate repeats the call if it did not get the answer
		return
	}
}

// acquireDaemonTasks answers with the tasks of the delegate's daemon sets that it asks for.
func (m *Manager) acquireDaemonTasks(w http.ResponseWriter, r *http.Request) {
	var in struct {
		TaskIDs []string `json:"task_ids"`
	}
	if _, ok := m.readAndDecode(w, r, &in, taskBounds); !ok {
		return
	}
	if err := checkCount("task_ids", len(in.TaskIDs), maxDaemonTasks); err != nil {
		writeError(w, err)
		return
	}
	requests := []any{}
	tasks, types := m.daemonTasks(account(r), pathParam(r, "delegate"), in.TaskIDs)
	for i := range tasks {
		request, err := daemonRequest(&tasks[i], types[i], account(r))
		if err != nil {
			writeStatus(w, http.StatusInternalServerError, err.Error())
			return
		}
		requests = append(requests, request)
	}
	writeJSON(w, http.StatusOK, struct {
		Requests []any `json:"requests"`
	}{requests})
}

// daemonTasks returns those of the tasks that the delegate has, with the types of their daemon sets.
func (m *Manager) daemonTasks(account, delegate string, ids []string) (out []api.DaemonTask, types []string) {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.daemons[account]
	if d == nil {
		return nil, nil
	}
	p, seen := c.planDaemons(account, m.cfg.Clock.Now()), map[string]bool{}
	for _, id := range ids {
		s := d.Sets[d.owners[id]]
		if s == nil || seen[id] {
			continue
		}
		if _, has := slices.BinarySearch(p.tasks[delegate][s.ID], id); has {
			out, types = append(out, *s.Tasks[id]), append(types, s.Type)
			seen[id] = true
		}
	}
	return out, types
}

// typeDaemonTask is the type of the task that hands a task of a daemon set over.
const typeDaemonTask = "daemonset/tasks/assign"

// daemonRequest returns a task of a daemon set in the form of protocol v2.
func daemonRequest(t *api.DaemonTask, typ, account string) (any, error) {
	type params struct {
		Data []byte `json:"binary_data"`
	}
	payload := []byte(t.Data)
	if len(t.Binary) > 0 {
		payload = t.Binary
	}
	data, err := json.Marshal(struct {
		ID     string `json:"daemon_task_id"`
		Params params `json:"params"`
		Type   string `json:"type"`
	}{t.ID, params{payload}, typ})
	if err != nil {
		return nil, err
	}
	secrets, err := secretTasks(t.Secrets)
	if err != nil {
		return nil, err
	}
	return requestV2(&task.Task{ID: t.ID, Type: typeDaemonTask, Data: data, Secrets: secrets}, account)
}
