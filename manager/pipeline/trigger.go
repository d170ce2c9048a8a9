package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/manager/pipeline/internal/trigger"
)

// The values of api.Trigger.Kind.
const (
	webhookTrigger  = "webhook"
	cronTrigger     = "cron"
	gitTrigger      = "git"
	registryTrigger = "registry"
)

const (
	mostTriggers     = 1000
	mostTriggerBytes = 32 << 20
	mostTrigger      = 64 << 10 // bytes of one trigger
	mostPatterns     = 100
	mostPattern      = 256 // bytes
)

// savedTrigger is a trigger in the database.
type savedTrigger struct {
	api.Trigger

	Sealed []byte `json:"sealed,omitempty"`
}

// shown returns the trigger for the caller.
func (t *savedTrigger) shown(o *store.Object) api.Trigger {
	out := t.Trigger
	out.Version, out.UpdatedAt, out.Next, out.HasSecret = o.Version, o.Updated, o.Due, len(t.Sealed) > 0
	return out
}

// SetTrigger adds a trigger, or replaces the one with its id. It fails with [ErrInvalid], with [Problems] if the inputs
// do not fit the pipeline, and with [ErrConflict].
func (s *Service) SetTrigger(ctx context.Context, account string, t api.Trigger) (api.Trigger, error) {
	saved, wanted := savedTrigger{Trigger: t}, t.Version
	if err := saved.check(); err != nil {
		return api.Trigger{}, err
	}
	if err := s.checkTarget(ctx, account, &saved); err != nil {
		return api.Trigger{}, err
	}
	if err := s.sealSecret(account, &saved); err != nil {
		return api.Trigger{}, err
	}
	if t.CommitStatus != nil {
		if _, err := s.statusConnector(ctx, account, t.CommitStatus); err != nil {
			return api.Trigger{}, err
		}
	}
	if isSource(t.Kind) {
		if _, err := s.sourceManager(); err != nil {
			return api.Trigger{}, err
		}
		if _, err := s.sourceTask(ctx, account, &saved); err != nil {
			return api.Trigger{}, err
		}
	}
	object := &store.Object{Account: account, Kind: kindTrigger, ID: t.ID, Updated: now()}
	if t.Kind == cronTrigger && !t.Disabled {
		next, err := saved.after(object.Updated)
		if err != nil {
			return api.Trigger{}, err
		}
		object.Due = next
	}
	saved.Secret, saved.HasSecret, saved.Version, saved.UpdatedAt, saved.Next = "", false, 0, time.Time{}, time.Time{}
	fresh := saved.Sealed
	err := s.store.Update(ctx, func(tx *store.Tx) error {
		saved.Sealed = fresh
		if err := expectVersion(tx, object, wanted); err != nil {
			return err
		}
		had, err := saved.keep(tx, object)
		if err != nil {
			return err
		}
		if isSource(t.Kind) || isSource(had) {
			if err := touchSource(tx, account, t.ID); err != nil {
				return err
			}
		}
		data, err := json.Marshal(saved)
		if err != nil {
			return fmt.Errorf("encoding trigger %s: %w", t.ID, err)
		}
		if len(data) > mostTrigger {
			return fmt.Errorf("%w: the trigger has %d bytes: it may have %d", ErrInvalid, len(data), mostTrigger)
		}
		object.Data = data
		return putObject(tx, object, store.Room{Count: mostTriggers, Bytes: mostTriggerBytes})
	})
	if err != nil {
		return api.Trigger{}, err
	}
	return saved.shown(object), nil
}

// sealSecret encrypts a new secret.
func (s *Service) sealSecret(account string, t *savedTrigger) error {
	if t.Kind != webhookTrigger {
		return nil
	}
	if len(s.cfg.Keys) == 0 {
		return fmt.Errorf("%w: kind: %w: set STORE_KEY of the manager, or Config.Keys", ErrInvalid, errNoKeys)
	}
	if t.Secret == "" {
		return nil
	}
	var err error
	t.Sealed, err = seal(s.cfg.Keys, t.Secret, owner(account, t.ID))
	return err
}

// owner identifies a trigger for which a secret is sealed. Ids have no slash.
func owner(account, id string) string { return account + "/" + id }

// keep takes over the secret and the results of the present trigger, if there is one, and returns its kind.
func (t *savedTrigger) keep(tx *store.Tx, o *store.Object) (kind string, err error) {
	old, err := tx.Object(o.Account, o.Kind, o.ID)
	var present savedTrigger
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return "", err
	default:
		if err := json.Unmarshal(old.Data, &present); err != nil {
			return "", fmt.Errorf("decoding trigger %s: %w", o.ID, err)
		}
	}
	t.Last, t.LastRun, t.LastError = present.Last, present.LastRun, present.LastError
	if t.Kind != webhookTrigger {
		return present.Kind, nil
	}
	if len(t.Sealed) == 0 {
		t.Sealed = present.Sealed
	}
	if len(t.Sealed) == 0 {
		return "", fmt.Errorf("%w: secret is missing: a webhook needs one, like those that `openssl rand -hex 32` prints", ErrInvalid)
	}
	return present.Kind, nil
}

// check checks the fields of a trigger on their own.
func (t *savedTrigger) check() error {
	switch {
	case !runName.MatchString(t.ID):
		return fmt.Errorf("%w: id may have 64 letters, digits, _ and -", ErrInvalid)
	case t.Pipeline == "":
		return fmt.Errorf("%w: pipeline is empty: set the id of a stored pipeline", ErrInvalid)
	case t.Labels["trigger"] != "" && t.Labels["trigger"] != t.ID:
		return fmt.Errorf("%w: labels.trigger: the service sets it", ErrInvalid)
	}
	if t.CommitStatus != nil && (t.Kind == cronTrigger || t.Kind == registryTrigger || t.Provider == string(trigger.Custom)) {
		return fmt.Errorf("%w: commit_status is for webhooks of Git providers and the kind git", ErrInvalid)
	}
	if t.Source != nil && !isSource(t.Kind) {
		return fmt.Errorf("%w: source is for the kinds git and registry", ErrInvalid)
	}
	switch t.Kind {
	case webhookTrigger:
		if t.Cron != "" || t.TimeZone != "" {
			return fmt.Errorf("%w: cron and time_zone are for the kind cron", ErrInvalid)
		}
		return t.checkWebhook()
	case cronTrigger:
		if t.Provider != "" || t.Secret != "" || len(t.Events) > 0 || len(t.Branches) > 0 || len(t.Tags) > 0 || t.Forks {
			return fmt.Errorf("%w: provider, secret, events, branches, tags and forks are for the kind webhook", ErrInvalid)
		}
		_, err := t.after(time.Now())
		return err
	case gitTrigger, registryTrigger:
		if err := t.checkSource(); err != nil {
			return err
		}
		return t.checkPatterns()
	}
	return fmt.Errorf("%w: kind is %q: use webhook, cron, git or registry", ErrInvalid, t.Kind)
}

func (t *savedTrigger) checkWebhook() error {
	const minSecret, maxSecret = 16, 256
	provider := trigger.Provider(t.Provider)
	switch {
	case !slices.Contains(trigger.Providers(), provider):
		return fmt.Errorf("%w: provider is %q: use github, gitlab, gitea, bitbucket or custom", ErrInvalid, t.Provider)
	case t.Secret != "" && (len(t.Secret) < minSecret || len(t.Secret) > maxSecret):
		return fmt.Errorf("%w: secret has %d bytes: use %d to %d", ErrInvalid, len(t.Secret), minSecret, maxSecret)
	case strings.ContainsFunc(t.Secret, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%w: secret: use printable ASCII characters without blanks: a header must be able to carry it", ErrInvalid)
	case provider == trigger.Custom && (len(t.Events) > 0 || len(t.Branches) > 0 || len(t.Tags) > 0 || t.Forks):
		return fmt.Errorf("%w: events, branches, tags and forks are for Git providers: use a condition on <+trigger.payload...> in the pipeline", ErrInvalid)
	}
	for i, e := range t.Events {
		if err := checkTriggerEvent(&e); err != nil {
			return fmt.Errorf("%w: events[%d].%w", ErrInvalid, i, err)
		}
	}
	return t.checkPatterns()
}

func (t *savedTrigger) checkPatterns() error {
	for name, patterns := range map[string][]string{"branches": t.Branches, "tags": t.Tags} {
		if len(patterns) > mostPatterns {
			return fmt.Errorf("%w: %s has %d patterns; it may have %d", ErrInvalid, name, len(patterns), mostPatterns)
		}
		for i, p := range patterns {
			if strings.TrimPrefix(p, "!") == "" || len(p) > mostPattern {
				return fmt.Errorf("%w: %s[%d]: a pattern has 1 to %d bytes", ErrInvalid, name, i, mostPattern)
			}
		}
	}
	return nil
}

func checkTriggerEvent(e *api.TriggerEvent) error {
	switch e.Type {
	case trigger.Push, trigger.Tag, trigger.PullRequest, trigger.Release, trigger.Comment:
	default:
		return fmt.Errorf("type is %q: use push, tag, pull_request, release or comment", e.Type)
	}
	known, _ := trigger.Actions(e.Type)
	for i, a := range e.Actions {
		if len(known) == 0 {
			return fmt.Errorf("actions: the type %s has none", e.Type)
		}
		if !slices.Contains(known, a) {
			return fmt.Errorf("actions[%d] is %q: use %s", i, a, strings.Join(known, ", "))
		}
	}
	return nil
}

// Trigger returns a trigger without its secret. It fails with [ErrNotFound].
func (s *Service) Trigger(ctx context.Context, account, id string) (api.Trigger, error) {
	var t savedTrigger
	o, err := s.object(ctx, account, kindTrigger, id, &t)
	if err != nil {
		return api.Trigger{}, err
	}
	return t.shown(o), nil
}

// Triggers lists triggers by their ids. Next is the id after which the next page begins, or empty.
func (s *Service) Triggers(ctx context.Context, account, after string) (page []api.Trigger, next string, err error) {
	if err := checkPage(after); err != nil {
		return nil, "", err
	}
	rows, err := s.store.Objects(ctx, account, kindTrigger, after, pageOfObjects+1)
	if err != nil {
		return nil, "", err
	}
	page = []api.Trigger{}
	for i := range rows[:min(len(rows), pageOfObjects)] {
		var t savedTrigger
		if err := json.Unmarshal(rows[i].Data, &t); err != nil {
			return nil, "", fmt.Errorf("decoding trigger %s: %w", rows[i].ID, err)
		}
		page = append(page, t.shown(&rows[i]))
	}
	if len(rows) > pageOfObjects {
		next = rows[pageOfObjects-1].ID
	}
	return page, next, nil
}

// DeleteTrigger removes a trigger with its secret. Its runs continue. It fails with [ErrNotFound].
func (s *Service) DeleteTrigger(ctx context.Context, account, id string) error {
	if !runName.MatchString(id) {
		return fmt.Errorf("%s %q: %w", kindTrigger, id, ErrNotFound)
	}
	err := s.store.Update(ctx, func(tx *store.Tx) error {
		o, err := tx.Object(account, kindTrigger, id)
		if err != nil {
			return err
		}
		var t savedTrigger
		if json.Unmarshal(o.Data, &t) == nil && isSource(t.Kind) {
			if err := touchSource(tx, account, id); err != nil {
				return err
			}
		}
		return tx.Delete(account, kindTrigger, id)
	})
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%s %s: %w", kindTrigger, id, ErrNotFound)
	}
	return err
}
