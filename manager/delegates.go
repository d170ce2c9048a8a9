package manager

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// Obstacle returns the reason why a delegate cannot take the stage, or an empty string if it can. Whether it has room now
// does not count.
func Obstacle(req *api.StageRequest, d *api.Delegate) string {
	has := map[string]bool{}
	for _, tag := range append([]string{d.Name}, d.Tags...) {
		has[strings.ToLower(strings.TrimSpace(tag))] = true
	}
	var missing []string
	for _, tag := range req.Selectors {
		if !has[strings.ToLower(strings.TrimSpace(tag))] {
			missing = append(missing, tag)
		}
	}
	name := cmp.Or(req.Infra, "local")
	supports := len(d.TaskTypes) == 0
	for _, types := range infra(name) {
		supports = supports || !slices.ContainsFunc(types[:], func(t string) bool { return !slices.Contains(d.TaskTypes, t) })
	}
	switch {
	case d.State != string(queue.Alive):
		return "it is " + strings.ToLower(d.State)
	case len(missing) > 0:
		return "it lacks the tags " + strings.Join(missing, ", ")
	case !supports:
		return "it does not run " + name + " stages"
	}
	return ""
}

// Delegates returns an account's delegates in the order of their registration,
// including lost ones.
func (m *Manager) Delegates(account string) []api.Delegate {
	known := m.core.queue.Delegates(account)
	out := make([]api.Delegate, 0, len(known))
	for _, d := range known {
		view := api.Delegate{
			ID: d.ID, Name: d.Name, HostName: d.HostName, Type: d.Type, Version: d.Version, Group: d.Group,
			State: string(d.State), Tags: emptyIfNil(d.Tags), TaskTypes: emptyIfNil(d.Types),
			MaxStages: d.MaxStages, Stages: d.Stages, Running: d.Running, StageIDs: d.StageIDs, TaskIDs: d.TaskIDs,
			RegisteredAt: d.Registered, LastHeartbeat: d.LastHeartbeatSeen, History: []api.DelegateChange{},
		}
		for _, c := range d.History {
			view.History = append(view.History, api.DelegateChange(c))
		}
		if r := d.Refused; r != nil {
			view.Refused = &api.Refusal{Resource: r.Resource, Load: r.Load, Limit: r.Limit, At: d.RefusedAt}
		}
		out = append(out, view)
	}
	return out
}

// registration is the body of register and heartbeat calls, as far as the manager
// uses it.
type registration struct {
	DelegateID   string   `json:"delegateId"`
	Name         string   `json:"delegateName"`
	DelegateType string   `json:"delegateType"`
	HostName     string   `json:"hostName"`
	TaskTypes    []string `json:"supportedTaskTypes"`
	Tags         []string `json:"tags"`
	Version      string   `json:"version"`
	// Extensions of the protocol:
	Draining bool           `json:"draining"`
	Group    string         `json:"group"`
	Refused  *queue.Refusal `json:"refused"`
}

func (r *registration) forQueue() queue.Registration {
	return queue.Registration{
		ID: r.DelegateID, NewID: rand.Text(), Name: r.Name, HostName: r.HostName, Type: r.DelegateType, Version: r.Version,
		Tags: r.Tags, Types: r.TaskTypes, Draining: r.Draining, Group: r.Group, Refused: r.Refused,
	}
}

func (m *Manager) register(w http.ResponseWriter, r *http.Request) {
	in, ok := m.decodeRegistration(w, r)
	if !ok {
		return
	}
	if err := m.checkVersion(in.Version); err != nil {
		m.cfg.Logger.Warn().Str("account_id", account(r)).Str("name", in.Name).Str("version", in.Version).Msg("refused a delegate that is too old")
		writeError(w, err)
		return
	}
	reg := in.forQueue()
	reg.NewID = rand.Text()
	isNew := !m.knowsDelegate(account(r), in.DelegateID)
	if isNew {
		release, err := m.budgets.take(account(r), amounts{budgetDelegates: 1})
		if err != nil {
			writeError(w, err)
			return
		}
		defer release()
	}
	got, err := m.applyCommand(r.Context(), &command{Account: account(r), Register: &reg})
	if err != nil {
		writeError(w, err)
		return
	}
	if isNew {
		m.budgets.registered(account(r))
	}
	m.cfg.Logger.Info().Str("account_id", account(r)).Str("delegate_id", got.id).Str("name", in.Name).
		Strs("tags", in.Tags).Msg("a delegate has registered")
	var out struct {
		Resource struct {
			DelegateID string `json:"delegateId"`
		} `json:"resource"`
	}
	out.Resource.DelegateID = got.id
	writeJSON(w, http.StatusOK, out)
}

func (m *Manager) heartbeat(w http.ResponseWriter, r *http.Request) {
	in, ok := m.decodeRegistration(w, r)
	if !ok {
		return
	}
	beat := in.forQueue()
	if m.core.queue.Unchanged(account(r), beat) {
		beat = queue.Registration{ID: beat.ID, Draining: beat.Draining, Refused: beat.Refused} // keep the frequent command small
	}
	if _, err := m.applyCommand(r.Context(), &command{Account: account(r), Heartbeat: &beat}); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Waiting map[string]int `json:"waitingStages,omitzero"`
	}{m.core.queue.WaitingByGroup(account(r), beat.ID, poolGroup, vmTypes)})
}

// vmTypes are the sets of task types of stages on virtual machines.
var vmTypes = func() (sets [][]string) {
	for _, types := range infra("vm") {
		sets = append(sets, types[:])
	}
	return sets
}()

func (m *Manager) knowsDelegate(account, id string) bool {
	_, err := m.core.queue.List(account, id, "")
	return err == nil
}

// decodeRegistration decodes and checks the body of a registration or heartbeat. If it
// reports false, it has already answered the request with an error.
func (m *Manager) decodeRegistration(w http.ResponseWriter, r *http.Request) (in registration, ok bool) {
	if !m.decodeBody(w, r, &in) {
		return in, false
	}
	if err := in.check(); err != nil {
		writeError(w, err)
		return in, false
	}
	return in, true
}

func (m *Manager) unregister(w http.ResponseWriter, r *http.Request) {
	var in struct {
		DelegateID string `json:"delegateId"`
	}
	if !m.decodeBody(w, r, &in) {
		return
	}
	if _, err := m.applyCommand(r.Context(), &command{Account: account(r), Unregister: &idCommand{in.DelegateID}}); err != nil {
		writeError(w, err)
		return
	}
	m.cfg.Logger.WithLevel(zerolog.InfoLevel).Str("account_id", account(r)).Str("delegate_id", in.DelegateID).
		Msg("a delegate has unregistered")
	w.WriteHeader(http.StatusNoContent)
}

func (m *Manager) capacity(w http.ResponseWriter, r *http.Request) {
	var in struct {
		MaxStages int `json:"maximumNumberOfBuilds"`
	}
	if !m.decodeBody(w, r, &in) {
		return
	}
	if err := checkNumber("maximumNumberOfBuilds", max(in.MaxStages, 0), maxCapacity); err != nil { // a negative number is no bound, like 0
		writeError(w, err)
		return
	}
	if _, err := m.applyCommand(r.Context(), &command{Account: account(r), Capacity: &capacityCommand{pathParam(r, "delegate"), in.MaxStages}}); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (m *Manager) listDelegates(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Delegates []api.Delegate `json:"delegates"`
	}{m.Delegates(account(r))})
}

func emptyIfNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
