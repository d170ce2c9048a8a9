package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// The state of a run is reported to a Git provider as the status of its commit. A change of the state and the wanted
// status are one transaction. There is one row for each commit and context: a newer state replaces one that was not sent
// yet, and of two runs the one that started last has the row. Statusdeliver.go sends the rows.

// providers are the kinds of connectors that take statuses.
var providers = []string{"github", "gitlab", "bitbucket", "gitea", "azure-repos"}

// commitTarget is where the state of a run is reported.
type commitTarget struct {
	Provider   string `json:"provider,omitempty"`
	Connector  string `json:"connector,omitempty"`
	Server     string `json:"server,omitempty"`
	Repository string `json:"repository,omitempty"`
	Commit     string `json:"commit,omitempty"`
	Context    string `json:"context,omitempty"`
	// Problem is why nothing is reported.
	Problem string `json:"problem,omitempty"`
}

func (t *commitTarget) slot() string {
	return digest([]string{t.Provider, t.Server, t.Repository, t.Commit, t.Context})
}

// wantedStatus is a state that a run reports.
type wantedStatus struct {
	target      commitTarget
	state       string
	description string
}

// savedStatus is the status of a commit in the database.
type savedStatus struct {
	Target commitTarget `json:"target"`
	// Began is when the run began. A run that began earlier does not replace the status.
	Began time.Time `json:"began"`
	// Seq counts the wanted states, and State is the last one. Since is when the first of those that were not sent was wanted.
	Seq         int64     `json:"seq"`
	State       string    `json:"state"`
	Description string    `json:"description,omitempty"`
	Since       time.Time `json:"since"`
	// Done is the last state that was sent or refused, and Sent its name if it was sent.
	Done int64  `json:"done,omitempty"`
	Sent string `json:"sent,omitempty"`
	// Attempt is the request that is under way, or nil.
	Attempt *statusAttempt `json:"attempt,omitempty"`
	// Tries counts the attempts since the last success.
	Tries   int    `json:"tries,omitempty"`
	Problem string `json:"problem,omitempty"`
	GivenUp bool   `json:"given_up,omitempty"`
}

// statusAttempt is a request to a provider. Its task has an id that is never used again.
type statusAttempt struct {
	Task  string          `json:"task"`
	Seq   int64           `json:"seq"`
	State string          `json:"state"`
	Data  json.RawMessage `json:"data"`
	// Selectors are the selectors of the connector.
	Selectors []string  `json:"selectors,omitempty"`
	Expires   time.Time `json:"expires"`
}

// commitTarget returns where a run reports its state, or nil.
func (s *Service) commitTarget(ctx context.Context, account string, wanted *api.CommitStatus, pipeline string, run *engine.Run) (*commitTarget, error) {
	if wanted == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	c, err := s.statusConnector(ctx, account, wanted)
	if err != nil {
		return nil, err
	}
	commit, _ := run.Codebase["commitSha"].(string)
	address, _ := run.Codebase["repoUrl"].(string)
	server := strings.TrimSuffix(cmp.Or(c.Address, publicAddress[c.Kind]), "/")
	switch {
	case len(commit) != 40 && len(commit) != 64 || strings.Trim(commit, "0123456789abcdef") != "":
		return nil, fmt.Errorf("%w: commit_status: codebase.commitSha is not the whole id of a commit", ErrInvalid)
	case address == "":
		return nil, fmt.Errorf("%w: commit_status: codebase.repoUrl is missing", ErrInvalid)
	case !strings.HasPrefix(server, "https://") && !strings.HasPrefix(server, "http://"):
		return nil, fmt.Errorf("%w: commit_status: the connector %q needs an address that begins with https://", ErrInvalid, c.ID)
	case !steps.SameHost(server, address):
		return nil, fmt.Errorf("%w: commit_status: the connector %q is for another server than the repository", ErrInvalid, c.ID)
	}
	repository := repositoryPath(server, address)
	if repository == "" || len(repository) > mostSourceText || printable(repository) != repository {
		return nil, fmt.Errorf("%w: commit_status: codebase.repoUrl does not name a repository", ErrInvalid)
	}
	return &commitTarget{
		Provider: c.Kind, Connector: c.ID, Server: server, Repository: repository, Commit: commit, Context: cmp.Or(wanted.Context, "dlite/"+pipeline),
	}, nil
}

// statusConnector returns the connector of a commit_status.
func (s *Service) statusConnector(ctx context.Context, account string, wanted *api.CommitStatus) (api.Connector, error) {
	const mostContext = 200
	if len(wanted.Context) > mostContext || printable(wanted.Context) != wanted.Context {
		return api.Connector{}, fmt.Errorf("%w: commit_status.context may have %d printable bytes", ErrInvalid, mostContext)
	}
	c, ok, err := s.managed(ctx, account, wanted.Connector)
	switch {
	case err != nil:
		return c, err
	case !ok:
		return c, fmt.Errorf("%w: commit_status.connector is %q: name a connector of the manager", ErrInvalid, wanted.Connector)
	case !slices.Contains(providers, c.Kind):
		return c, fmt.Errorf("%w: commit_status.connector has the kind %s: use %s", ErrInvalid, c.Kind, strings.Join(providers, ", "))
	}
	if _, ok := s.cfg.Manager.(statusTasks); !ok {
		return c, fmt.Errorf("%w: commit_status needs a manager that runs single tasks: the Manager of the service has no method SubmitTask", ErrInvalid)
	}
	return c, nil
}

// repositoryPath returns the path of a repository on its server.
func repositoryPath(server, address string) string {
	_, path, _ := strings.Cut(address, ":") // user@host:path
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		path = u.Path
	}
	if u, err := url.Parse(server); err == nil {
		path = strings.TrimPrefix(path, u.Path)
	}
	return strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}

// report returns the state that a run must report now, or nil, and notes it.
func (f *facts) report(run *store.Run) *wantedStatus {
	if f.Commit == nil || f.Commit.Problem != "" {
		return nil
	}
	state := commitState(engine.Status(run.Status), f.Reported == "")
	if state == f.Reported {
		return nil
	}
	f.Reported = state
	const most = 140 // of GitHub
	description := map[string]string{
		source.StatePending: "The pipeline waits.", source.StateRunning: "The pipeline runs.", source.StateSuccess: "The pipeline has succeeded.",
		source.StateAborted: "The pipeline was aborted.", source.StateFailure: "The pipeline has failed.",
	}[state]
	return &wantedStatus{target: *f.Commit, state: state, description: clip(description, most)}
}

func commitState(status engine.Status, first bool) string {
	switch {
	case first && !status.Ended():
		return source.StatePending
	case !status.Ended():
		return source.StateRunning
	case status == engine.Succeeded, status == engine.Skipped, status == engine.IgnoreFailed:
		return source.StateSuccess
	case status == engine.Aborted:
		return source.StateAborted
	}
	return source.StateFailure
}

// queueStatus writes the state that the run must report, in the transaction that changes the run.
func (l *liveRun) queueStatus(tx *store.Tx) error {
	w := l.due
	if w == nil {
		return nil
	}
	l.due = nil
	slot := w.target.slot()
	st, err := tx.Status(l.run.Account, slot)
	if errors.Is(err, store.ErrNotFound) {
		st, err = &store.Status{Account: l.run.Account, Slot: slot, Data: []byte("{}")}, nil
	}
	if err != nil {
		return err
	}
	var saved savedStatus
	if err := json.Unmarshal(st.Data, &saved); err != nil {
		return fmt.Errorf("decoding the status of a commit: %w", err)
	}
	if saved.Seq > 0 && st.Run != l.run.ID && saved.Began.After(l.run.Created) {
		return nil // a later run has the status
	}
	if saved.Done == saved.Seq {
		saved.Since, saved.Tries = now(), 0
	}
	saved.Target, saved.Began, saved.State, saved.Description, saved.GivenUp = w.target, l.run.Created, w.state, w.description, false
	saved.Seq++
	if st.Run = l.run.ID; saved.Attempt == nil && saved.Tries == 0 {
		st.Due = now()
	}
	return saved.put(tx, st)
}

// put writes a status.
func (s *savedStatus) put(tx *store.Tx, st *store.Status) (err error) {
	if st.Data, err = json.Marshal(s); err != nil {
		return err
	}
	st.Updated = now()
	return tx.SetStatus(st)
}

// reported returns the statuses of a run for the API.
func (s *Service) reported(ctx context.Context, row *store.Run) ([]api.ReportedStatus, error) {
	const most = 10
	var f facts
	_ = json.Unmarshal(row.State, &f) // this package has written it
	if f.Commit == nil {
		return nil, nil
	}
	if f.Commit.Problem != "" {
		return []api.ReportedStatus{{Context: f.Commit.Context, Problem: f.Commit.Problem, GivenUp: true}}, nil
	}
	rows, err := s.store.RunStatuses(ctx, row.Account, row.ID, most)
	var all []api.ReportedStatus
	for i := range rows {
		var st savedStatus
		if err := json.Unmarshal(rows[i].Data, &st); err != nil {
			return nil, err
		}
		t := &st.Target
		all = append(all, api.ReportedStatus{
			Provider: t.Provider, Repository: t.Repository, Commit: t.Commit, Context: t.Context, State: st.State, Sent: st.Sent, Problem: st.Problem, GivenUp: st.GivenUp,
		})
	}
	return all, err
}

// statusTasks is the part of a manager that runs single tasks. [manager.Manager] and [Remote] implement it.
type statusTasks interface {
	SubmitTask(ctx context.Context, account string, req manager.TaskRequest) (api.Task, error)
}
