package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
)

// keptFor is how long a Remote uses the connectors of an account before it asks for them again.
const keptFor = 5 * time.Second

// tableFor returns the table of an account: the connectors that the manager keeps for it, and the settings.
func (s *Service) tableFor(ctx context.Context, account string) (*steps.Table, error) {
	kept, err := s.connectorsOf(ctx, account)
	if err != nil {
		return nil, err
	}
	return s.table.With(kept), nil
}

// connectorsOf returns the connectors that the manager keeps for an account.
func (s *Service) connectorsOf(ctx context.Context, account string) ([]api.Connector, error) {
	switch m := s.cfg.Manager.(type) {
	case interface {
		Connectors(account string) []api.Connector // as manager.Manager
	}:
		return m.Connectors(account), nil
	case interface {
		ConnectorsOf(ctx context.Context, account string) ([]api.Connector, error) // as Remote
	}:
		kept, err := m.ConnectorsOf(ctx, account)
		if err != nil {
			return nil, fmt.Errorf("asking the manager for the connectors of the account: %w", err)
		}
		return kept, nil
	}
	return nil, nil
}

// ConnectorsOf returns the connectors of an account. They may be some seconds old. A manager that keeps none has none.
func (r *Remote) ConnectorsOf(ctx context.Context, account string) ([]api.Connector, error) {
	a, ok := r.accounts[account]
	if !ok {
		return nil, nil
	}
	a.mu.Lock()
	kept, at := a.connectors, a.asked
	a.mu.Unlock()
	if !at.IsZero() && time.Since(at) < keptFor {
		return kept, nil
	}
	kept, err := a.client.Connectors(ctx)
	var refused *api.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound { // of an older version
		kept, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connectors, a.asked = kept, time.Now()
	return kept, nil
}
