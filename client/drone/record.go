package drone

import (
	"encoding/json"
	"maps"
)

// record is a stage or a step as the server sent it. An update replaces all members at the
// server, so those that this package does not know must return unchanged.
type record map[string]json.RawMessage

// with returns a copy of r with other members.
func (r record) with(members map[string]any) record {
	out := maps.Clone(r)
	if out == nil {
		out = record{}
	}
	for name, v := range members {
		b, err := json.Marshal(v)
		if err != nil {
			continue // only texts, numbers and lists of them are set
		}
		out[name] = b
	}
	return out
}

// number returns an integer member, 0 if it has none.
func (r record) number(name string) (n int64) {
	_ = json.Unmarshal(r[name], &n)
	return n
}

// text returns a text member, "" if it has none.
func (r record) text(name string) (s string) {
	_ = json.Unmarshal(r[name], &s)
	return s
}

// flag returns a boolean member.
func (r record) flag(name string) (b bool) {
	_ = json.Unmarshal(r[name], &b)
	return b
}

// steps returns the steps of a stage by their number.
func (r record) steps() map[int]record {
	var list []record
	_ = json.Unmarshal(r["steps"], &list)
	out := map[int]record{}
	for _, s := range list {
		if s.number("id") > 0 {
			out[int(s.number("number"))] = s
		}
	}
	return out
}

// The statuses of stages and steps (docs/protocol.md 6).
const (
	statusPending = "pending"
	statusRunning = "running"
	statusSuccess = "success"
	statusFailure = "failure"
	statusError   = "error"
	statusKilled  = "killed"
	statusSkipped = "skipped"
)

// ended reports whether a stage or step with a status has ended.
func ended(status string) bool {
	switch status {
	case statusSuccess, statusFailure, statusError, statusKilled, statusSkipped, "declined":
		return true
	}
	return false
}

// details is the answer to the question for a stage.
type details struct {
	Build  record `json:"build"`
	Stage  record `json:"stage"`
	Config struct {
		Data []byte `json:"Data"`
	} `json:"config"`
	Netrc *struct {
		Machine  string `json:"machine"`
		Login    string `json:"login"`
		Password string `json:"password"`
	} `json:"netrc"`
	Repo    record `json:"repository"`
	Secrets []struct {
		Name string `json:"name"`
		Data string `json:"data"`
	} `json:"secrets"`
	System struct {
		Proto   string `json:"proto"`
		Host    string `json:"host"`
		Link    string `json:"link"`
		Version string `json:"version"`
	} `json:"system"`
}

// cancelled reports whether the build has been cancelled.
func (d *details) cancelled() bool {
	return d.Build.text("status") == statusKilled || d.Stage.text("status") == statusKilled
}
