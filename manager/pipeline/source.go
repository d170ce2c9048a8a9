package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/manager/pipeline/internal/trigger"
)

// A trigger of the kind git or registry has a perpetual task of the manager. The database has an object of kindSource
// for it, which is due when the task may differ from the trigger: after a change, and from time to time, in case that
// the manager has lost its store. The task follows from the trigger alone, so that any service can write it, also twice.

// perpetuals is the part of a manager that runs perpetual tasks. [manager.Manager] implements it.
type perpetuals interface {
	SetPerpetual(ctx context.Context, account string, t api.PerpetualTask) (api.PerpetualTask, error)
	DeletePerpetual(ctx context.Context, account, id string) error
	ConsumePerpetual(ctx context.Context, taskType string, f func(context.Context, []manager.PerpetualEvent) error) error
}

const (
	kindSource = "source" // by the id of the trigger

	// sourceCall bounds a call of the manager. It is below sourceClaim, for which one service has the source.
	sourceCall  = 20 * time.Second
	sourceClaim = time.Minute
	// sourceAgain is the time between two looks at a source without a change, and sourceRetry after a failure.
	sourceAgain = 10 * time.Minute
	sourceRetry = 15 * time.Second

	minInterval, maxInterval, defaultInterval = 10, 24 * 60 * 60, 60 // seconds
	mostSourceText                            = 2048                 // bytes
	mostHostKeys                              = 16 << 10
	mostSourceTags                            = 50
	mostSourceSelectors                       = 20
)

// savedSource is a source in the database.
type savedSource struct {
	// Removed is when the task of a trigger that does not exist any more was first removed. It is removed once more later: a
	// call of another service may have been under way.
	Removed time.Time `json:"removed,omitzero"`
}

// isSource reports whether a trigger has a source.
func isSource(kind string) bool { return kind == gitTrigger || kind == registryTrigger }

// sourceTaskID returns the id of the perpetual task of a trigger.
func sourceTaskID(id string) string { return "trigger-" + id }

// sourceManager returns the manager's perpetual tasks.
func (s *Service) sourceManager() (perpetuals, error) {
	p, ok := s.cfg.Manager.(perpetuals)
	if !ok {
		return nil, fmt.Errorf("%w: kind: this pipeline service is apart from its manager and cannot poll for the kinds git and registry: use the kind webhook or cron, or the pipeline service that runs in the process of the manager (PIPELINES_DATABASE of the manager)", ErrInvalid)
	}
	return p, nil
}

// checkSource checks the fields of a trigger with a source.
func (t *savedTrigger) checkSource() error {
	src := t.Source
	switch {
	case t.Provider != "" || t.Secret != "" || t.Forks || t.Cron != "" || t.TimeZone != "":
		return fmt.Errorf("%w: provider, secret, forks, cron and time_zone are for other kinds", ErrInvalid)
	case src == nil || src.Repository == "":
		return fmt.Errorf("%w: source.repository is missing", ErrInvalid)
	case src.IntervalSeconds != 0 && (src.IntervalSeconds < minInterval || src.IntervalSeconds > maxInterval):
		return fmt.Errorf("%w: source.interval_seconds is %d: use %d to %d", ErrInvalid, src.IntervalSeconds, minInterval, maxInterval)
	case len(src.Digests) > mostSourceTags || len(src.Selectors) > mostSourceSelectors:
		return fmt.Errorf("%w: source.digests may have %d members, and source.selectors %d", ErrInvalid, mostSourceTags, mostSourceSelectors)
	case t.Kind == gitTrigger && (len(src.Digests) > 0 || src.Insecure):
		return fmt.Errorf("%w: source.digests and source.insecure are for the kind registry", ErrInvalid)
	case t.Kind == registryTrigger && (len(t.Events) > 0 || len(t.Branches) > 0 || src.HostKeys != ""):
		return fmt.Errorf("%w: events, branches and source.host_keys are for the kinds of Git", ErrInvalid)
	}
	for i := range t.Events {
		if kind := t.Events[i].Type; kind != trigger.Push && kind != trigger.Tag {
			return fmt.Errorf("%w: events[%d].type is %q: a poll sees push and tag", ErrInvalid, i, kind)
		}
	}
	for name, texts := range map[string][]string{"repository": {src.Repository}, "connector": {src.Connector}, "digests": src.Digests, "selectors": src.Selectors} {
		for _, text := range texts {
			if err := checkText("source."+name, text, mostSourceText); err != nil {
				return err
			}
			if printable(text) != text {
				return fmt.Errorf("%w: source.%s has characters that cannot be printed", ErrInvalid, name)
			}
		}
	}
	return checkText("source.host_keys", src.HostKeys, mostHostKeys)
}

// sourceTask returns the perpetual task of a trigger.
func (s *Service) sourceTask(ctx context.Context, account string, t *savedTrigger) (api.PerpetualTask, error) {
	src := t.Source
	task := api.PerpetualTask{
		ID: sourceTaskID(t.ID), Name: "trigger " + t.ID, IntervalMS: int64(src.IntervalSeconds) * 1000, TimeoutMS: time.Minute.Milliseconds(), Selectors: src.Selectors,
	}
	if task.IntervalMS == 0 {
		task.IntervalMS = defaultInterval * 1000
	}
	address, auth, hostKeys, err := s.sourceAccess(ctx, account, t)
	if err != nil {
		return task, err
	}
	address = expression.Escape(address)
	var config any
	if t.Kind == gitTrigger {
		task.Type = source.TypeGit
		if err := checkGitAddress(address); err != nil {
			return task, fmt.Errorf("%w: source.repository: %w", ErrInvalid, err)
		}
		git := source.GitConfig{URL: address, Auth: auth, HostKeys: expression.Escape(cmp.Or(src.HostKeys, hostKeys))}
		if t.wants(trigger.Push) {
			git.Branches = escaped(orAll(t.Branches))
		}
		if t.wants(trigger.Tag) {
			git.Tags = escaped(orAll(t.Tags))
		}
		config = git
	} else {
		task.Type = source.TypeRegistry
		image := source.RegistryConfig{Repository: address, Auth: auth, Insecure: src.Insecure, Digests: escaped(src.Digests)}
		if len(src.Digests) == 0 || len(t.Tags) > 0 {
			image.Tags = escaped(orAll(t.Tags))
		}
		config = image
	}
	task.Config, err = json.Marshal(config)
	return task, err
}

// checkGitAddress checks the form of an address of a Git repository.
func checkGitAddress(address string) error {
	scheme, rest, ok := strings.Cut(address, "://")
	switch {
	case !ok && strings.Contains(address, ":") && !strings.HasPrefix(address, "/"):
		return nil // user@host:path
	case !ok:
		return errors.New("it is not an address: use https://, ssh:// or user@host:path, or a connector")
	case scheme != "https" && scheme != "http" && scheme != "ssh":
		return fmt.Errorf("the scheme is %q: use https, http or ssh", scheme)
	}
	host, _, _ := strings.Cut(rest, "/")
	if user, _, has := strings.Cut(host, "@"); has && (scheme != "ssh" || strings.Contains(user, ":")) {
		return errors.New("the address has credentials: use a connector")
	}
	return nil
}

// wants reports whether a trigger starts for a type of event.
func (t *savedTrigger) wants(kind string) bool {
	return len(t.Events) == 0 || slices.ContainsFunc(t.Events, func(e api.TriggerEvent) bool { return e.Type == kind })
}

func orAll(patterns []string) []string {
	if len(patterns) == 0 {
		return []string{"**"}
	}
	return patterns
}

// escaped returns texts in which a delegate finds no references to secrets.
func escaped(texts []string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, expression.Escape(text))
	}
	return out
}

// touchSource makes the source of a trigger due, in the transaction that changes or removes the trigger.
func touchSource(tx *store.Tx, account, id string) error {
	data, err := json.Marshal(savedSource{})
	if err != nil {
		return err
	}
	o := store.Object{Account: account, Kind: kindSource, ID: id, Updated: now(), Due: now(), Data: data}
	return putObject(tx, &o, store.Room{Count: 2 * mostTriggers, Bytes: mostTriggerBytes})
}

// syncSources writes the perpetual tasks of the sources that are due.
func (s *Service) syncSources(ctx context.Context, at time.Time) error {
	const batch = 50
	due, err := s.store.DueObjects(ctx, kindSource, at, batch)
	for i := range due {
		if ctx.Err() != nil {
			break
		}
		if one := s.syncSource(ctx, &due[i]); one != nil {
			err = errors.Join(err, fmt.Errorf("the source of trigger %s of account %s: %w", due[i].ID, due[i].Account, one))
		}
	}
	return err
}

// syncSource writes the perpetual task of a source.
func (s *Service) syncSource(ctx context.Context, seen *store.Object) error {
	claimed := now().Add(sourceClaim)
	if err := s.noteSource(ctx, seen, func(o *store.Object, _ *savedSource) error {
		o.Due = claimed
		return nil
	}); err != nil {
		return ignoreNotDue(err)
	}
	seen.Due = claimed
	var t savedTrigger
	_, err := s.object(ctx, seen.Account, kindTrigger, seen.ID, &t)
	wanted := err == nil && isSource(t.Kind) && !t.Disabled
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	failed := s.writeSource(ctx, seen.Account, seen.ID, &t, wanted)
	if failed != nil && wanted {
		s.noteProblem(ctx, seen.Account, seen.ID, failed)
	}
	err = s.noteSource(ctx, seen, func(o *store.Object, src *savedSource) error {
		switch {
		case failed != nil:
			o.Due = now().Add(sourceRetry)
		case wanted:
			o.Due, src.Removed = now().Add(sourceAgain), time.Time{}
		case src.Removed.IsZero():
			o.Due, src.Removed = now().Add(2*sourceClaim), now()
		default:
			return errRemove
		}
		return nil
	})
	return errors.Join(failed, ignoreNotDue(err))
}

// writeSource sets or removes the perpetual task of a trigger.
func (s *Service) writeSource(ctx context.Context, account, id string, t *savedTrigger, wanted bool) error {
	m, err := s.sourceManager()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sourceCall)
	defer cancel()
	if !wanted {
		if err := m.DeletePerpetual(ctx, account, sourceTaskID(id)); err != nil && !errors.Is(err, manager.ErrNotFound) {
			return err
		}
		return nil
	}
	task, err := s.sourceTask(ctx, account, t)
	if err != nil {
		return err
	}
	_, err = m.SetPerpetual(ctx, account, task)
	return err
}

// errRemove makes noteSource remove the source.
var errRemove = errors.New("the source is removed")

// noteSource changes a source that is as it was seen. It fails with errNotDue otherwise: then another service has it, or
// the trigger has changed, and it is due again.
func (s *Service) noteSource(ctx context.Context, seen *store.Object, change func(*store.Object, *savedSource) error) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		o, err := tx.Object(seen.Account, seen.Kind, seen.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (o.Version != seen.Version || !o.Due.Equal(seen.Due)) {
			return errNotDue
		}
		if err != nil {
			return err
		}
		var src savedSource
		if err := json.Unmarshal(o.Data, &src); err != nil {
			return fmt.Errorf("decoding a source: %w", err)
		}
		if err := change(o, &src); errors.Is(err, errRemove) {
			return tx.Delete(o.Account, o.Kind, o.ID)
		} else if err != nil {
			return err
		}
		if o.Data, err = json.Marshal(src); err != nil {
			return err
		}
		return tx.Note(o)
	})
}

func ignoreNotDue(err error) error {
	if errors.Is(err, errNotDue) {
		return nil
	}
	return err
}

// noteProblem shows on a trigger why its source is not polled.
func (s *Service) noteProblem(ctx context.Context, account, id string, problem error) {
	err := s.store.Update(ctx, func(tx *store.Tx) error {
		o, err := tx.Object(account, kindTrigger, id)
		if err != nil {
			return err
		}
		var t savedTrigger
		if err := json.Unmarshal(o.Data, &t); err != nil {
			return err
		}
		return t.note(tx, o, time.Now(), nil, problem)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
		s.cfg.Logger.Warn().Err(err).Str("account", account).Str("trigger", id).Msg("pipelines: the problem of a source was not noted")
	}
}
