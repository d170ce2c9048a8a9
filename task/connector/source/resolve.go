package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// resolvedFor is how long the values of secrets are used again. A poll that fails forgets them at once.
const resolvedFor = 5 * time.Minute

// resolved is a configuration with the values of its secrets.
type resolved struct {
	config []byte
	masks  *secrets.Set
	until  time.Time
}

// resolve replaces the references to secrets in a configuration (rule S1).
func (s *Sources) resolve(ctx context.Context, config json.RawMessage) (*resolved, error) {
	key := configID(config)
	if r, ok := s.resolved.get(key); ok && time.Now().Before(r.until) {
		return r, nil
	}
	set := secrets.NewSet(s.secrets.Masks)
	data, err := secrets.NewResolver(set, s.secrets).Resolve(ctx, config)
	if err != nil {
		return nil, err
	}
	r := &resolved{config: data, masks: set, until: time.Now().Add(resolvedFor)}
	s.resolved.put(key, r)
	return r, nil
}

func configID(config json.RawMessage) string {
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:])
}

// polled returns a handler that decodes the configuration and the state of a run. An error of poll is masked (rule S3).
func polled[C, S any](s *Sources, poll func(context.Context, *C, *S) (*task.PerpetualResult, error)) task.Perpetual {
	return task.PerpetualFunc(func(ctx context.Context, run *task.PerpetualRun) (*task.PerpetualResult, error) {
		leave, err := s.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		ctx, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		r, err := s.resolve(ctx, run.Config)
		if err != nil {
			return nil, fmt.Errorf("the secrets of the source: %w", err)
		}
		var config C
		var state S
		if json.Unmarshal(r.config, &config) != nil { // the error may quote a value
			return nil, errors.New("the configuration of the source is not valid")
		}
		if len(run.State) > 0 && json.Unmarshal(run.State, &state) != nil {
			return nil, errors.New("the state of the source is not valid")
		}
		result, err := poll(ctx, &config, &state)
		if err != nil {
			s.resolved.remove(configID(run.Config))
			return nil, errors.New(r.masks.Mask(err.Error()))
		}
		return result, nil
	})
}
