package manager

import (
	"crypto/rand"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager/internal/queue"
)

// DelegateState is the state of a [Delegate].
type DelegateState = queue.DelegateState

// The states of a delegate. A draining delegate takes no new stages. A lost delegate
// has stopped sending heartbeats.
const (
	DelegateAlive    = queue.Alive
	DelegateDraining = queue.Draining
	DelegateLost     = queue.Gone
)

// Delegate describes a delegate in the API.
type Delegate struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	HostName string `json:"host_name,omitempty"`
	Type     string `json:"type,omitempty"`
	Version  string `json:"version,omitempty"`
	// Group is the group of delegates that can serve each other's transactions. It is
	// empty for a delegate without one.
	Group string `json:"group,omitempty"`
	// State is ALIVE, DRAINING (finishes its stages and takes no new ones) or LOST
	// (stopped sending heartbeats).
	State DelegateState `json:"state"`
	Tags  []string      `json:"tags"`
	// TaskTypes lists the task types that the delegate supports. It is empty if the
	// delegate did not say.
	TaskTypes []string `json:"task_types"`
	// MaxStages is how many stages the delegate may run at a time; 0 is unbounded.
	// Stages is how many it runs. Running is the number of its running tasks.
	MaxStages     int       `json:"max_stages"`
	Stages        int       `json:"stages"`
	Running       int       `json:"running"`
	RegisteredAt  time.Time `json:"registered_at"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
}

// Delegates returns an account's delegates in the order of their registration,
// including lost ones.
func (m *Manager) Delegates(account string) []Delegate {
	known := m.core.queue.Delegates(account)
	out := make([]Delegate, 0, len(known))
	for _, d := range known {
		out = append(out, Delegate{
			ID: d.ID, Name: d.Name, HostName: d.HostName, Type: d.Type, Version: d.Version, Group: d.Group,
			State: d.State, Tags: emptyIfNil(d.Tags), TaskTypes: emptyIfNil(d.Types),
			MaxStages: d.MaxStages, Stages: d.Stages, Running: d.Running,
			RegisteredAt: d.Registered, LastHeartbeat: d.LastHeartbeatSeen,
		})
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
	Draining bool   `json:"draining"`
	Group    string `json:"group"`
}

func (r *registration) forQueue() queue.Registration {
	return queue.Registration{
		ID: r.DelegateID, NewID: rand.Text(), Name: r.Name, HostName: r.HostName, Type: r.DelegateType, Version: r.Version,
		Tags: r.Tags, Types: r.TaskTypes, Draining: r.Draining, Group: r.Group,
	}
}

func (m *Manager) register(w http.ResponseWriter, r *http.Request) {
	in, ok := m.decodeRegistration(w, r)
	if !ok {
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
		beat = queue.Registration{ID: beat.ID, Draining: beat.Draining} // keep the frequent command small
	}
	if _, err := m.applyCommand(r.Context(), &command{Account: account(r), Heartbeat: &beat}); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

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
		Delegates []Delegate `json:"delegates"`
	}{m.Delegates(account(r))})
}

func emptyIfNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
