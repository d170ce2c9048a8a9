package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Fleet asks a manager for permission to upgrade, and reports outcomes to it.
type Fleet struct {
	URL, Account string // of the manager
	// Token returns a token of the account.
	Token func() (string, error)
	// ID identifies the delegate through its upgrades. Name and Host describe it.
	ID, Name, Host string
	HTTPClient     *http.Client
}

// Answer is the answer of a manager to a delegate that asks. Without a Version the manager leaves the upgrade to the
// delegate.
type Answer struct {
	Version string `json:"version"`
	Granted bool   `json:"granted"`
	Reason  string `json:"reason"` // why not
}

// question is the body of the call.
type question struct {
	ID      string `json:"id"`
	Name    string `json:"delegateName"`
	Host    string `json:"hostName"`
	Version string `json:"version"`
	// Failed is the version to which the upgrade failed, Reason why.
	Failed string `json:"failed,omitempty"`
	Reason string `json:"reason,omitempty"`
}

const (
	askTimeout = 30 * time.Second
	maxAnswer  = 64 << 10
	maxReason  = 1000
)

// ask asks the manager, and reports a failure if failed is not empty. The answer is nil if the manager does not know
// the call.
func (f *Fleet) ask(ctx context.Context, version, failed, reason string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	token, err := f.Token()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(question{ID: f.ID, Name: f.Name, Host: f.Host, Version: version, Failed: failed, Reason: reason[:min(len(reason), maxReason)]})
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(f.URL)
	if err != nil {
		return nil, errors.New("URL is not valid")
	}
	at = at.JoinPath("api/agent/delegates/upgrade")
	at.RawQuery = url.Values{"accountId": {f.Account}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Delegate "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := f.HTTPClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusMethodNotAllowed:
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("ask the manager for an upgrade: %s: %.200s", resp.Status, b)
	}
	var a Answer
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("ask the manager for an upgrade: %w", err)
	}
	return &a, nil
}
