package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/client"
)

// Delegate is what the server knows of a delegate.
type Delegate struct {
	ID string
	// Registration is the latest: the registration itself or a heartbeat.
	Registration client.Registration
	// Registered is when the delegate registered, Seen when it last called, in
	// whatever way.
	Registered, Seen time.Time
	// Registrations and Heartbeats count the calls.
	Registrations, Heartbeats int
	// Capacity is what it reported, -1 when it has not.
	Capacity int
	// Left says that it unregistered.
	Left bool
	// Unregistration is what it left with, nil before.
	Unregistration *client.Unregistration
}

type delegate struct{ Delegate }

// supports is whether the delegate wants tasks of a type.
func (d *delegate) supports(taskType string) bool {
	types := d.Registration.SupportedTaskTypes
	return len(types) == 0 || slices.Contains(types, taskType)
}

// Delegates are all that have registered, in order, those that left included. One
// that was forgotten is not among them.
func (s *Server) Delegates() []Delegate {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Delegate, len(s.joined))
	for i, d := range s.joined {
		out[i] = d.Delegate
	}
	return out
}

// Forget makes the server not know a delegate any longer, as after a restart of
// the manager: its calls are answered with 404 until it registers again
// (SPEC C4). It is false when the delegate was not known.
func (s *Server) Forget(delegateID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delegates[delegateID] == nil {
		return false
	}
	delete(s.delegates, delegateID)
	s.joined = slices.DeleteFunc(s.joined, func(d *delegate) bool { return d.ID == delegateID })
	s.news.raise() // a poll that waits is answered now
	return true
}

// authorize checks the token of every call, and the account and the secret's hash
// where a call has them (PROTOCOL 1).
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tok, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Delegate ")
		if !ok {
			http.Error(w, `the header "Authorization: Delegate <token>" is missing`, http.StatusUnauthorized)
			return
		}
		claims, err := s.secret.Verify(tok, time.Now())
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if hash := r.Header.Get("delegateTokenHash"); hash != "" && hash != s.secret.Hash() {
			http.Error(w, "delegateTokenHash is not the hash of the account's secret", http.StatusUnauthorized)
			return
		}
		if id := r.URL.Query().Get("accountId"); id != s.Account || claims.Account != s.Account {
			http.Error(w, fmt.Sprintf("account %q with a token for %q, where %q was expected", id, claims.Account, s.Account),
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var reg client.Registration
	if !decode(w, r, &reg) {
		return
	}
	s.mu.Lock()
	d := s.delegates[reg.DelegateID]
	if d == nil {
		s.made++
		d = &delegate{Delegate{ID: fmt.Sprintf("delegate-%d", s.made), Registered: time.Now(), Capacity: -1}}
		s.delegates[d.ID], s.joined = d, append(s.joined, d)
	}
	d.Registration, d.Seen, d.Left = reg, time.Now(), false
	d.Registrations++
	id := d.ID
	s.mu.Unlock()

	var answer struct {
		Resource struct {
			DelegateID string `json:"delegateId"`
		} `json:"resource"`
	}
	answer.Resource.DelegateID = id
	encode(w, answer)
}

func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request) {
	var reg client.Registration
	if !decode(w, r, &reg) || !s.update(w, reg.DelegateID, func(d *delegate) {
		d.Registration = reg
		d.Heartbeats++
	}) {
		return
	}
	encode(w, struct{}{})
}

func (s *Server) unregister(w http.ResponseWriter, r *http.Request) {
	var u client.Unregistration
	if !decode(w, r, &u) || !s.update(w, u.DelegateID, func(d *delegate) {
		d.Left, d.Unregistration = true, &u
	}) {
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) capacity(w http.ResponseWriter, r *http.Request) {
	var c struct {
		Max *int `json:"maximumNumberOfBuilds"`
	}
	if !decode(w, r, &c) {
		return
	}
	if c.Max == nil || *c.Max < 0 {
		http.Error(w, "maximumNumberOfBuilds is missing or negative", http.StatusBadRequest)
		return
	}
	if s.update(w, entryOf(r).delegateID, func(d *delegate) { d.Capacity = *c.Max }) {
		w.WriteHeader(http.StatusNoContent)
	}
}

// update changes a delegate, or answers 404.
func (s *Server) update(w http.ResponseWriter, id string, change func(*delegate)) bool {
	s.mu.Lock()
	d := s.delegates[id]
	if d != nil {
		d.Seen = time.Now()
		change(d)
	}
	s.mu.Unlock()
	if d == nil {
		unknownDelegate(w, id)
	}
	return d != nil
}

func unknownDelegate(w http.ResponseWriter, id string) {
	http.Error(w, fmt.Sprintf("delegate %q is not known", id), http.StatusNotFound)
}

// decode reads a JSON body, or answers 400.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		http.Error(w, "decoding the body: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func encode(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}
