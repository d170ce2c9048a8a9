package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/manager/pipeline/internal/trigger"
)

const (
	// mostStarts is how many runs a webhook may start in a minute.
	mostStarts = 60
	// maxNesting bounds the depth of a payload.
	maxNesting = 100
)

var (
	// errUnsigned means that a call has no valid proof, or that there is no such webhook. A caller cannot tell them
	// apart.
	errUnsigned = errors.New("the call is not signed for this webhook")
	errTooMany  = errors.New("the webhook has started as many runs as it may in a minute")
)

// hookCall is a verified call of a webhook.
type hookCall struct {
	account string
	trigger savedTrigger
	header  http.Header
	body    []byte
	payload map[string]any
}

// verify returns the call if its proof is valid. It does the same work for a webhook that does not exist, so that the
// time of the answer does not reveal it.
func (s *Service) verify(ctx context.Context, account, id string, header http.Header, body []byte) (*hookCall, error) {
	c := &hookCall{account: account, header: header, body: body}
	_, err := s.object(ctx, account, kindTrigger, id, &c.trigger)
	known := err == nil && c.trigger.Kind == webhookTrigger
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	provider, secret := trigger.GitHub, []byte("no webhook has this secret")
	if !known {
		_, _ = unseal(s.cfg.Keys, make([]byte, 2*saltLength), owner(account, id)) // it never opens
	} else {
		provider = trigger.Provider(c.trigger.Provider)
		if secret, err = unseal(s.cfg.Keys, c.trigger.Sealed, owner(account, id)); err != nil {
			s.cfg.Logger.Error().Err(err).Str("account", account).Str("trigger", id).Msg("a webhook cannot be verified")
			return nil, errUnsigned
		}
	}
	if !trigger.Verify(provider, secret, header, body) || !known {
		return nil, errUnsigned
	}
	return c, nil
}

// callHook starts the runs of a verified call.
func (s *Service) callHook(ctx context.Context, c *hookCall) (api.HookAnswer, error) {
	if c.trigger.Disabled {
		return api.HookAnswer{Ignored: "the trigger is disabled"}, nil
	}
	if err := c.decode(); err != nil {
		return api.HookAnswer{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	events, err := trigger.Read(trigger.Provider(c.trigger.Provider), c.header, c.payload)
	if err != nil {
		return api.HookAnswer{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	out := api.HookAnswer{Ignored: "the delivery has no event that starts runs"}
	for i := range events {
		if reason := c.trigger.ignores(&events[i]); reason != "" {
			out.Ignored = reason
			continue
		}
		run, repeated, err := s.startEvent(ctx, c, i, &events[i])
		if err != nil {
			return api.HookAnswer{}, err
		}
		if repeated {
			out.Repeated = append(out.Repeated, run)
		} else {
			out.Runs = append(out.Runs, run)
		}
	}
	if len(out.Runs)+len(out.Repeated) > 0 {
		out.Ignored = ""
	}
	return out, nil
}

// decode decodes the payload.
func (c *hookCall) decode() error {
	kind, _, _ := strings.Cut(c.header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) == "application/x-www-form-urlencoded" {
		return errors.New("the body is a form: set the content type of the webhook to application/json")
	}
	if len(c.body) == 0 && c.trigger.Provider == string(trigger.Custom) {
		c.payload = map[string]any{}
		return nil
	}
	var payload engine.Values
	if err := json.Unmarshal(c.body, &payload); err != nil {
		return fmt.Errorf("the body is not a JSON object: %w", err)
	}
	if nested(map[string]any(payload), maxNesting) {
		return fmt.Errorf("the body is nested more than %d levels", maxNesting)
	}
	c.payload = payload
	return nil
}

// nested reports whether a value has more levels than most.
func nested(value any, most int) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if most == 0 || nested(member, most-1) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return most == 0 || nested(item, most-1) })
	}
	return false
}

// ignores returns the reason why the trigger starts nothing for an event, or nothing.
func (t *savedTrigger) ignores(e *trigger.Event) string {
	if e.Type == trigger.Call {
		return ""
	}
	events := t.Events
	if len(events) == 0 {
		events = []api.TriggerEvent{{Type: trigger.Push}, {Type: trigger.Tag}, {Type: trigger.PullRequest}}
	}
	matches := slices.ContainsFunc(events, func(wanted api.TriggerEvent) bool {
		known, actions := trigger.Actions(e.Type)
		if len(wanted.Actions) > 0 {
			actions = wanted.Actions
		}
		return wanted.Type == e.Type && (len(known) == 0 || slices.Contains(actions, e.Action))
	})
	byTag := e.Type == trigger.Tag || e.Type == trigger.Release
	switch {
	case !matches:
		return "the trigger does not start for this event"
	case byTag && !source.Match(t.Tags, e.Tag):
		return "the tag does not match tags"
	case !byTag && !source.Match(t.Branches, e.Branch):
		return "the branch does not match branches"
	case e.Foreign && !t.Forks:
		return "the change may come from another repository, and forks is not set"
	}
	return ""
}

// startEvent starts the run of the event with an index in the delivery.
func (s *Service) startEvent(ctx context.Context, c *hookCall, index int, e *trigger.Event) (run string, repeated bool, err error) {
	live, err := s.prepareEvent(ctx, c, e)
	if err == nil {
		err = s.store.Update(ctx, func(tx *store.Tx) error {
			run, repeated, err = c.deliver(tx, index, live)
			return err
		})
	}
	switch {
	case err == nil && !repeated:
		s.started(live)
	case errors.Is(err, ErrInvalid):
		s.cfg.Logger.Warn().Err(err).Str("account", c.account).Str("trigger", c.trigger.ID).Msg("a trigger started no run")
		err = errors.Join(err, s.store.Update(ctx, func(tx *store.Tx) error { return c.note(tx, nil, err) }))
	}
	return run, repeated, err
}

// prepareEvent returns the run of an event.
func (s *Service) prepareEvent(ctx context.Context, c *hookCall, e *trigger.Event) (*preparedRun, error) {
	const mostText = 256 // as request.check
	provider := trigger.Provider(c.trigger.Provider)
	req := c.trigger.request()
	req.Cause, req.Branch = "WEBHOOK", clip(printable(e.Branch), mostText)
	if provider == trigger.Custom {
		req.Cause = "WEBHOOK_CUSTOM"
	}
	req.User, req.Email = clip(printable(e.User), mostText), clip(printable(e.Email), mostText)
	req.Trigger, req.Codebase = e.Trigger(provider, c.payload, c.header), e.Codebase()
	live, err := s.prepare(ctx, c.account, &req)
	if err != nil {
		return nil, err
	}
	return live, s.checkValues(live.doc)
}

// printable removes characters that a list of runs cannot show, and that a database may refuse.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// deliver writes the run of a delivery, unless an earlier delivery has started it.
func (c *hookCall) deliver(tx *store.Tx, index int, live *preparedRun) (run string, repeated bool, err error) {
	d := store.Delivery{Account: c.account, Hook: c.trigger.ID, Run: live.run.ID, At: live.run.Created}
	for _, name := range trigger.Names(trigger.Provider(c.trigger.Provider), c.header, c.body) {
		d.Names = append(d.Names, name+"/"+strconv.Itoa(index))
	}
	if len(d.Names) == 0 { // it counts for the rate
		d.Names = []string{"run:" + d.Run}
	}
	// The lock of the trigger makes deliveries wait for each other, so that the rate is exact.
	if _, err := tx.Object(c.account, kindTrigger, c.trigger.ID); errors.Is(err, store.ErrNotFound) {
		return "", false, errUnsigned // it was deleted meanwhile
	} else if err != nil {
		return "", false, err
	}
	n, err := tx.Deliveries(c.account, c.trigger.ID, d.At.Add(-time.Minute))
	if err != nil {
		return "", false, err
	}
	run, repeated, err = tx.Deliver(d)
	switch {
	case err != nil || repeated:
		return run, repeated, err
	case n >= mostStarts:
		return "", false, errTooMany
	}
	if err := live.create(tx); err != nil {
		return "", false, err
	}
	return run, false, c.note(tx, live, nil)
}

// note writes the result of a call to the trigger.
func (c *hookCall) note(tx *store.Tx, live *preparedRun, refused error) error {
	o, err := tx.Object(c.account, kindTrigger, c.trigger.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var t savedTrigger
	if err := json.Unmarshal(o.Data, &t); err != nil {
		return fmt.Errorf("decoding trigger %s: %w", c.trigger.ID, err)
	}
	return t.note(tx, o, time.Now(), live, refused)
}
