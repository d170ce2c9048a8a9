package api

import (
	"context"
	"time"
)

// Connector describes how delegates reach an outside system. It has references of secrets and never their values.
type Connector struct {
	// ID is unique among the account's connectors. Pipelines name it in connectorRef.
	ID string `json:"id"`
	// Name is a description for people.
	Name string `json:"name,omitempty"`
	// Kind is the kind of system, such as github, registry or kubernetes. docs/connectors.md lists the kinds.
	Kind string `json:"kind"`
	// Address is a URL. Kinds of public services have a default.
	Address string `json:"address,omitempty"`
	// Secrets has references by the names of the kind, such as token. A reference is a URL such as vault://kv/ci#token, which
	// the delegate resolves.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Options has settings that are not secret, by the names of the kind, such as repository.
	Options map[string]string `json:"options,omitempty"`
	// Selectors are tags of the delegates that can reach the system. A test goes to one of them, unless it names another.
	Selectors []string `json:"selectors,omitempty"`
	// UpdatedAt is when the connector was set last. The manager sets it.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// ConnectorTestRequest chooses how to test a connector.
type ConnectorTestRequest struct {
	// Delegate is the name or the id of the delegate that tests. Empty means any delegate that the selectors permit.
	Delegate string `json:"delegate,omitempty"`
	// Selectors replace those of the connector.
	Selectors []string `json:"selectors,omitempty"`
	// TimeoutMS bounds the test, in milliseconds, without the wait for a delegate. 0 means 20 seconds. The most is 5 minutes.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// ConnectorTest is the result of a test. It contains no values of secrets.
type ConnectorTest struct {
	Connector string `json:"connector"`
	// OK means that every step was successful.
	OK bool `json:"ok"`
	// DelegateID is the delegate that tested.
	DelegateID string `json:"delegate_id,omitempty"`
	// TaskID is the single task that was the test.
	TaskID string `json:"task_id"`
	// Steps has the parts of the test in their order. If OK is false, the last one has failed.
	Steps []ConnectorStep `json:"steps"`
}

// ConnectorStep is a part of the test of a connector.
type ConnectorStep struct {
	// Name is delegate, secrets, address, name, proxy, connection, tls, host_key, answer, authentication or permission.
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Message describes the observation of the test.
	Message string `json:"message"`
	// Remedy is the advice for the operator.
	Remedy string `json:"remedy,omitempty"`
	// Millis is the duration in milliseconds.
	Millis int64 `json:"millis"`
}

// connectorList is the answer of the list of connectors.
type connectorList struct {
	Connectors []Connector `json:"connectors"`
}

// maxConnectorTest is how long the manager may hold the test of a connector.
const maxConnectorTest = 6 * time.Minute

// Connectors returns the connectors of the account, ordered by id.
func (c *Client) Connectors(ctx context.Context) ([]Connector, error) {
	list, err := fetch[connectorList](ctx, c, get("api", "connectors"))
	return list.Connectors, err
}

// Connector returns a connector.
func (c *Client) Connector(ctx context.Context, id string) (Connector, error) {
	return fetch[Connector](ctx, c, get("api", "connectors", id))
}

// SetConnector adds a connector, or replaces the one with its id.
func (c *Client) SetConnector(ctx context.Context, con Connector) (Connector, error) {
	return fetch[Connector](ctx, c, put("api", "connectors", con.ID).with(con))
}

// DeleteConnector removes a connector.
func (c *Client) DeleteConnector(ctx context.Context, id string) error {
	return c.run(ctx, remove("api", "connectors", id))
}

// TestConnector tests a connector from a delegate and waits for the result (rule G3). A failed test is not an error: the
// result has OK false.
func (c *Client) TestConnector(ctx context.Context, id string, req ConnectorTestRequest) (ConnectorTest, error) {
	what := post("api", "connectors", id, "test").with(req)
	what.hold = maxConnectorTest
	return fetch[ConnectorTest](ctx, c, what)
}
