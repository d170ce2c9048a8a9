package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
)

const (
	// typeConnectorTest is the type of the task that tests a connector. Package
	// task/connector has its handler.
	typeConnectorTest = "connector/test"

	// connectorTest is how long a test may take by default, and maxConnectorTest at most.
	connectorTest    = 20 * time.Second
	maxConnectorTest = 5 * time.Minute
	// connectorQueue is how long a test waits for a delegate.
	connectorQueue = 15 * time.Second
	// connectorGrace is the time for secrets and messages besides the test.
	connectorGrace = 20 * time.Second
	// maxConnectorSteps is the largest number of steps of a result.
	maxConnectorSteps = 50
)

// connectorData is the data of a task of the type typeConnectorTest.
type connectorData struct {
	Connector struct {
		ID      string            `json:"id"`
		Kind    string            `json:"kind"`
		Address string            `json:"address,omitempty"`
		Secrets map[string]string `json:"secrets,omitempty"`
		Options map[string]string `json:"options,omitempty"`
	} `json:"connector"`
	TimeoutMS int64 `json:"timeout_ms"`
}

// TestConnector tests a connector from a delegate and waits for the result (rule G3). If
// the test cannot run, the result has a failed step with the reason. It fails with
// [ErrNotFound], [ErrInvalid] and [ErrBudget].
func (m *Manager) TestConnector(ctx context.Context, account, id string, req api.ConnectorTestRequest) (api.ConnectorTest, error) {
	if err := firstError(
		checkNames("selectors", req.Selectors),
		checkSize("delegate", len(req.Delegate), maxName),
		checkNumber("timeout_ms", req.TimeoutMS, maxConnectorTest.Milliseconds()),
	); err != nil {
		return api.ConnectorTest{}, err
	}
	c, err := synced(ctx, m, func() (api.Connector, error) { return m.Connector(account, id) })
	if err != nil {
		return api.ConnectorTest{}, err
	}
	if len(req.Selectors) == 0 {
		req.Selectors = c.Selectors
	}
	if req.Delegate != "" {
		name, err := m.delegateName(account, req.Delegate)
		if err != nil {
			return api.ConnectorTest{}, err
		}
		req.Selectors = []string{name}
	}
	limit := cmp.Or(time.Duration(req.TimeoutMS)*time.Millisecond, connectorTest)
	data, err := json.Marshal(connectorTask(&c, limit))
	if err != nil {
		return api.ConnectorTest{}, err
	}
	t, err := m.SubmitTask(ctx, account, TaskRequest{
		Task:      task.Task{ID: "connector-test-" + rand.Text(), Type: typeConnectorTest, Data: data, Timeout: toMillis(limit + connectorGrace)},
		Selectors: req.Selectors, Priority: "HIGH", QueueTimeout: toMillis(connectorQueue), Sync: true,
	})
	if err != nil {
		return api.ConnectorTest{}, err
	}
	wait, cancel := m.holdContext(ctx, limit+connectorGrace+connectorQueue)
	defer cancel()
	if now, err := m.WaitTask(wait, account, t.ID); err != nil {
		if now.ID != "" {
			t = now
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectorGrace)
		defer cancel()
		_, _ = m.AbortTask(ctx, account, t.ID) // its time-out ends it otherwise
	} else {
		t = now
	}
	return connectorResult(c.ID, &t), nil
}

// connectorTask returns the data of the task. Each secret becomes an expression that the
// delegate replaces.
func connectorTask(c *api.Connector, limit time.Duration) connectorData {
	d := connectorData{TimeoutMS: limit.Milliseconds()}
	d.Connector.ID, d.Connector.Kind, d.Connector.Address, d.Connector.Options = c.ID, c.Kind, c.Address, c.Options
	d.Connector.Secrets = map[string]string{}
	for name, ref := range c.Secrets {
		d.Connector.Secrets[name] = "${{secrets." + ref + "}}"
	}
	return d
}

// delegateName returns the name of a delegate by its name or id. The name counts as a
// tag.
func (m *Manager) delegateName(account, nameOrID string) (string, error) {
	found := map[string]int{}
	name := ""
	for _, d := range m.Delegates(account) {
		found[strings.ToLower(d.Name)]++
		if d.ID == nameOrID || strings.EqualFold(d.Name, nameOrID) {
			name = d.Name
		}
	}
	switch {
	case name == "":
		return "", fmt.Errorf("delegate %q: %w", nameOrID, ErrNotFound)
	case found[strings.ToLower(name)] > 1 && !strings.EqualFold(name, nameOrID):
		return "", fmt.Errorf("%w: delegate: %d delegates have the name %q, so the id cannot choose one of them: give it another NAME", ErrInvalid, found[strings.ToLower(name)], name)
	}
	return name, nil
}

// connectorResult makes the result of a test from its task.
func connectorResult(id string, t *api.Task) api.ConnectorTest {
	r := api.ConnectorTest{Connector: id, DelegateID: t.DelegateID, TaskID: t.ID, Steps: []api.ConnectorStep{}}
	refuse := func(step, message, remedy string) api.ConnectorTest {
		r.OK = false
		r.Steps = append(r.Steps, api.ConnectorStep{Name: step, Message: message, Remedy: remedy})
		return r
	}
	const start = "start a delegate that reaches the system and announces tasks of the type connector/test, or choose another with delegate or selectors"
	switch {
	case t.Status == api.Success:
		var got struct {
			OK    bool                `json:"ok"`
			Steps []api.ConnectorStep `json:"steps"`
		}
		if err := json.Unmarshal(t.Data, &got); err != nil || len(got.Steps) == 0 || len(got.Steps) > maxConnectorSteps {
			return refuse("delegate", "the answer of the delegate is not the result of a test", "run a delegate of the version of the manager")
		}
		r.OK, r.Steps = got.OK, got.Steps
		for i := range r.Steps {
			s := &r.Steps[i]
			s.Name, s.Message, s.Remedy = cut(s.Name, maxPathName), cut(s.Message, maxMessage), cut(s.Remedy, maxMessage)
		}
		return r
	case t.StartedAt.IsZero() && t.DelegateID == "":
		return refuse("delegate", cmp.Or(t.Error, t.Reason, "no delegate took the test"), start)
	case !t.Ended():
		return refuse("delegate", "the delegate has not answered in time", "look into the log of the delegate")
	case strings.Contains(t.Error, "secret"):
		return refuse("secrets", t.Error, "correct the reference in the connector, or the access of the delegate to its secret store")
	}
	return refuse("delegate", "the delegate could not run the test: "+t.Error, "look into the log of the delegate")
}

func (m *Manager) testConnector(w http.ResponseWriter, r *http.Request) {
	var req api.ConnectorTestRequest
	if r.ContentLength != 0 && !m.decodeStrict(w, r, &req, knownShapes().connectorTest) {
		return
	}
	release, ok := m.hold(w, r, budgetHolds)
	if !ok {
		return
	}
	defer release()
	result, err := m.TestConnector(r.Context(), account(r), pathParam(r, "id"), req)
	if err != nil && !errors.Is(err, context.Canceled) {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, result)
}
