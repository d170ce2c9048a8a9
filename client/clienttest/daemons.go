package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/task"
)

// daemonSets are the daemon sets of the server, the same for each delegate.
type daemonSets struct {
	sets    []task.DaemonSet
	tasks   map[string]*task.Task
	version uint64 // of the sets
	changed broadcast
	reports map[string][]task.DaemonReport // by delegate
	told    broadcast                      // reports have changed
}

// SetDaemonSets replaces the daemon sets of all delegates, and their tasks. The ID of a
// task is the one in TaskIDs of its daemon set; its Data is the payload for the daemon. The
// delegates receive the change at once, unless the server has no extensions.
func (s *Server) SetDaemonSets(sets []task.DaemonSet, tasks ...*task.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.daemons
	d.sets, d.tasks = slices.Clone(sets), map[string]*task.Task{}
	for _, t := range tasks {
		d.tasks[t.ID] = t
	}
	d.version++
	d.changed.send()
}

// DaemonReports returns the latest report of a delegate about its daemon sets.
func (s *Server) DaemonReports(delegateID string) []task.DaemonReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.daemons.reports[delegateID])
}

// WaitDaemonReports waits until the latest report of any delegate satisfies ok, and
// returns it. It returns the error of ctx if that ends first.
func (s *Server) WaitDaemonReports(ctx context.Context, ok func([]task.DaemonReport) bool) ([]task.DaemonReport, error) {
	for {
		s.mu.Lock()
		told := s.daemons.told.wait()
		var found []task.DaemonReport
		matched := false
		for _, r := range s.daemons.reports {
			if !matched && ok(r) {
				found, matched = slices.Clone(r), true
			}
		}
		last := fmt.Sprintf("%+v", s.daemons.reports)
		s.mu.Unlock()
		if matched {
			return found, nil
		}
		select {
		case <-told:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for a report of daemon sets; the last ones are %.500s: %w", last, ctx.Err())
		case <-s.done:
			return nil, errClosed
		}
	}
}

func (s *Server) reconcile(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Data []task.DaemonReport `json:"data"`
	}
	if !decode(w, r, &in) {
		return
	}
	id := arrivalOf(r).delegateID
	wait, since := s.parseWait(r)
	if !s.update(w, id, func(d *delegate) {
		if s.daemons.reports == nil {
			s.daemons.reports = map[string][]task.DaemonReport{}
		}
		s.daemons.reports[d.ID] = in.Data
		s.daemons.told.send()
	}) {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for waiting := wait > 0; ; {
		s.mu.Lock()
		sets, version, changed := s.daemons.sets, s.daemons.version+1, s.daemons.changed.wait()
		s.mu.Unlock()
		if waiting && version == since {
			select {
			case <-changed:
			case <-timer.C:
				waiting = false
			case <-r.Context().Done():
				return
			case <-s.done:
				http.Error(w, errClosed.Error(), http.StatusServiceUnavailable)
				return
			}
			continue
		}
		if wait > 0 {
			w.Header().Set(cursorHeader, strconv.FormatUint(version, 10))
		}
		encode(w, struct {
			Data []daemonSet `json:"data"`
		}{wireSets(sets)})
		return
	}
}

// daemonSet is a daemon set on the wire, with its secret tasks in the form of v2.
type daemonSet struct {
	task.DaemonSet
	Secrets []*runnerTask `json:"secrets,omitempty"`
}

func wireSets(sets []task.DaemonSet) []daemonSet {
	out := []daemonSet{}
	for _, set := range sets {
		d := daemonSet{DaemonSet: set}
		for _, t := range set.Secrets {
			d.Secrets = append(d.Secrets, newRunnerTask(t))
		}
		if d.TaskIDs == nil {
			d.TaskIDs = []string{}
		}
		out = append(out, d)
	}
	return out
}

func (s *Server) daemonTasks(w http.ResponseWriter, r *http.Request) {
	var in struct {
		IDs []string `json:"task_ids"`
	}
	if !decode(w, r, &in) {
		return
	}
	answer := struct {
		Requests []runnerRequest `json:"requests"`
	}{Requests: []runnerRequest{}}
	var failed error
	if !s.update(w, arrivalOf(r).delegateID, func(*delegate) {
		for _, id := range in.IDs {
			t := s.daemons.tasks[id]
			if t == nil {
				continue
			}
			type params struct {
				Data []byte `json:"binary_data"`
			}
			data, err := json.Marshal(struct {
				ID     string `json:"daemon_task_id"`
				Params params `json:"params"`
				Type   string `json:"type"`
			}{id, params{t.Data}, t.Type})
			if err != nil {
				failed = err
			}
			req := runnerRequest{Task: &runnerTask{ID: id, Type: "daemonset/tasks/assign", Data: data}, Account: s.Account, ID: id}
			for _, secret := range t.Secrets {
				req.Secrets = append(req.Secrets, newRunnerTask(secret))
			}
			answer.Requests = append(answer.Requests, req)
		}
	}) {
		return
	}
	if failed != nil {
		http.Error(w, failed.Error(), http.StatusInternalServerError)
		return
	}
	encode(w, answer)
}
