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

// Delegate describes a delegate that registered with the server.
type Delegate struct {
	ID string
	// Registration is the latest registration or heartbeat.
	Registration client.Registration
	// Registered is the time of the first registration, Seen the time of the
	// latest call of any kind.
	Registered, Seen time.Time
	// Registrations and Heartbeats count the calls.
	Registrations, Heartbeats int
	// Capacity is the reported number of stages, -1 before a report.
	Capacity int
	// Unregistration is the payload with which the delegate unregistered. It is
	// nil before that, and after the delegate registered again.
	Unregistration *client.Unregistration
}

type delegate struct{ Delegate }

// supports reports whether the delegate takes tasks of a type.
func (d *delegate) supports(taskType string) bool {
	types := d.Registration.SupportedTaskTypes
	return len(types) == 0 || slices.Contains(types, taskType)
}

// Delegates returns all delegates in order of registration, including delegates
// that unregistered and excluding delegates that [Server.Forget] removed.
func (s *Server) Delegates() []Delegate {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Delegate, len(s.registered))
	for i, d := range s.registered {
		out[i] = d.Delegate
	}
	return out
}

// Forget removes a delegate, as a restart of a manager does. The server answers
// the delegate's calls with 404 until it registers again (rule C4). Forget
// returns false if the delegate is unknown.
func (s *Server) Forget(delegateID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delegates[delegateID] == nil {
		return false
	}
	delete(s.delegates, delegateID)
	s.registered = slices.DeleteFunc(s.registered, func(d *delegate) bool { return d.ID == delegateID })
	s.cursorMoved.send() // a waiting poll gets its 404 now
	return true
}

// authorize checks the token of every call, and the account and the hash of the
// secret where a call has them (docs/protocol.md 1).
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
			http.Error(w, fmt.Sprintf("the account is %q and the token's account %q: both must be %q", id, claims.Account, s.Account),
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
		d = &delegate{Delegate{ID: s.nextID("delegate"), Registered: time.Now(), Capacity: -1}}
		s.delegates[d.ID], s.registered = d, append(s.registered, d)
	}
	d.Registration, d.Seen, d.Unregistration = reg, time.Now(), nil
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
	if !decode(w, r, &u) || !s.update(w, u.DelegateID, func(d *delegate) { d.Unregistration = &u }) {
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
	if s.update(w, arrivalOf(r).delegateID, func(d *delegate) { d.Capacity = *c.Max }) {
		w.WriteHeader(http.StatusNoContent)
	}
}

// update changes a delegate and returns true, or answers 404.
func (s *Server) update(w http.ResponseWriter, id string, change func(*delegate)) bool {
	s.mu.Lock()
	d := s.delegates[id]
	if d != nil {
		d.Seen = time.Now()
		change(d)
	}
	s.mu.Unlock()
	if d == nil {
		answerUnknownDelegate(w, id)
	}
	return d != nil
}

func answerUnknownDelegate(w http.ResponseWriter, id string) {
	http.Error(w, fmt.Sprintf("delegate %q is not known", id), http.StatusNotFound)
}

// decode reads a JSON body and returns true, or answers 400.
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
