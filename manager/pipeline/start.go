package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// request is a request with values that only the service knows.
type request struct {
	api.RunRequest

	// templates are those of an earlier run with the same definition.
	templates map[string]Source
	// sets are all input sets of a request for a stored pipeline, and stored is its version.
	sets   []Source
	stored int64
	// again reports that the commit status was copied from an earlier run.
	again bool
}

// mostLabels bounds the labels of a run, and of a filter.
const mostLabels = 20

// runName matches ids of runs.
var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// causes are the values of api.RunRequest.Cause.
var causes = map[string]bool{"": true, "MANUAL": true, "WEBHOOK": true, "WEBHOOK_CUSTOM": true, "SCHEDULER_CRON": true, "ARTIFACT": true}

func (r *request) check() error {
	const mostText = 256
	switch {
	case r.ID != "" && !runName.MatchString(r.ID):
		return fmt.Errorf("%w: id may have 64 letters, digits, _ and -", ErrInvalid)
	case strings.TrimSpace(r.YAML) == "":
		return fmt.Errorf("%w: yaml is empty", ErrInvalid)
	case !causes[r.Cause]:
		return fmt.Errorf("%w: cause is %q: use MANUAL, WEBHOOK, WEBHOOK_CUSTOM, SCHEDULER_CRON or ARTIFACT", ErrInvalid, r.Cause)
	case len(r.Labels) > mostLabels:
		return fmt.Errorf("%w: labels has %d members; it may have %d", ErrInvalid, len(r.Labels), mostLabels)
	}
	texts := map[string]string{"name": r.Name, "branch": r.Branch, "user": r.User, "email": r.Email}
	for name, value := range r.Labels {
		if name == "" {
			return fmt.Errorf("%w: labels has a member without a name", ErrInvalid)
		}
		texts["labels."+name], texts["the name labels."+name] = value, name
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if err := checkText(name, texts[name], mostText); err != nil {
			return err
		}
	}
	return nil
}

// checkText checks a text that is kept in the database.
func checkText(name, text string, most int) error {
	const shown = 64
	if len(name) > shown {
		name = name[:shown] + "..."
	}
	switch {
	case len(text) > most:
		return fmt.Errorf("%w: %s has %d bytes; it may have %d", ErrInvalid, name, len(text), most)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return fmt.Errorf("%w: %s is not text: it must be UTF-8 without the character U+0000", ErrInvalid, strconv.QuoteToASCII(name))
	}
	return nil
}

// Start reads a pipeline and starts a run of it. It fails with [ErrInvalid], and with [Problems]
// if the pipeline has errors. It fails with [ErrBudget].
func (s *Service) Start(ctx context.Context, account string, req api.RunRequest) (api.Run, error) {
	return s.startRun(ctx, account, &request{RunRequest: req})
}

func (s *Service) startRun(ctx context.Context, account string, req *request) (api.Run, error) {
	live, err := s.prepare(ctx, account, req)
	if err != nil {
		return api.Run{}, err
	}
	var started api.Run
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		if err := live.create(tx); err != nil {
			return err
		}
		started = detail(&live.liveRun)
		return nil
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return s.Run(ctx, account, live.run.ID)
	case errors.Is(err, ErrBudget) && req.ID != "": // the run may have been started before
		if run, known := s.Run(ctx, account, req.ID); known == nil {
			return run, nil
		}
		return api.Run{}, err
	case err != nil:
		return api.Run{}, err
	}
	s.started(live)
	return started, nil
}

// started keeps the state of a run whose transaction has committed.
func (s *Service) started(live *preparedRun) {
	run := *live.run // the cache's run changes
	s.cache.keep(&live.liveRun)
	s.counts.start(run.Account)
	s.announceChange(&run)
	s.cfg.Logger.Info().Str("account", run.Account).Str("run", run.ID).Str("pipeline", run.Pipeline).Int64("number", run.Number).Msg("run started")
}

// create writes a new run with its first commands. It fails with [store.ErrExists] if the account has a run with the
// id.
func (p *preparedRun) create(tx *store.Tx) error {
	active, err := tx.Active(p.run.Account, p.maxActive)
	if err != nil {
		return err
	}
	if active >= p.maxActive {
		return fmt.Errorf("%w: the account has %d active runs, and may have %d", ErrBudget, active, p.maxActive)
	}
	p.run.Version = 0
	number, err := tx.Number(p.run.Account, p.run.Pipeline)
	if err != nil {
		return err
	}
	p.run.Number, p.doc.Run.Number = number, number
	state, commands, err := p.machine.Start(p.doc.Run)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p.state = state
	if err := p.summarise(); err != nil {
		return err
	}
	if p.run.Definition, err = json.Marshal(p.doc); err != nil {
		return fmt.Errorf("encoding a run: %w", err)
	}
	nodes, err := encodeNodes(state)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		p.count(n)
	}
	if err := tx.Create(p.run, nodes); err != nil {
		return err
	}
	if err := p.queueStatus(tx); err != nil {
		return err
	}
	return send(tx, p.run, commands)
}

// preparedRun is a run that has not started.
type preparedRun struct {
	liveRun

	maxActive int // active runs that the account may have
	doc       *document
	pipeline  *definition.Pipeline
}

func (s *Service) prepare(ctx context.Context, account string, req *request) (*preparedRun, error) {
	if err := s.resolve(ctx, account, req); err != nil {
		return nil, err
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	id := req.ID
	if id == "" {
		id = strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "")
	}
	cause := req.Cause
	if cause == "" {
		cause = "MANUAL"
	}
	name := req.Name
	if name == "" {
		name = "pipeline.yaml"
	}
	hold, err := definition.ParseTimeout(req.HoldFailed)
	if err != nil {
		return nil, fmt.Errorf("%w: hold_failed: %w", ErrInvalid, err)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	doc := &document{
		Source: Source{Name: name, Text: []byte(req.YAML)}, InputSets: req.inputSets(), Inputs: req.Inputs, SkipOtherStages: req.SkipOtherStages, Templates: req.templates,
		StepTypes: stepTypes(s.cfg.Settings),
		Run: engine.Run{
			ID: id, Account: account, StartedAt: now, TriggerType: cause, User: req.User, Email: req.Email,
			Trigger: req.Trigger, Codebase: req.Codebase, Variables: req.Variables, Stages: req.Stages,
			HoldFailed: hold,
		},
	}
	planName, err := doc.name()
	if err != nil {
		return nil, err
	}
	read, err := s.cache.plan(planName, doc, s.cfg.Templates)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p := read.pipeline
	selected, err := selectStages(p, &req.RunRequest)
	if err != nil {
		return nil, err
	}
	doc.Run.Stages = selected
	s.nameRepository(ctx, &doc.Run, p)
	run := &store.Run{
		Account: account, ID: id, Pipeline: p.Identifier, Branch: req.Branch, Cause: cause, Created: now, Labels: req.Labels,
		Search: strings.Join([]string{p.Identifier, p.Name, req.Branch, req.User}, "\n"),
	}
	live := &preparedRun{liveRun: liveRun{run: run, machine: read.machine}, doc: doc, pipeline: p, maxActive: s.cfg.MaxActive}
	target, err := s.commitTarget(ctx, account, req.CommitStatus, p.Identifier, &doc.Run)
	switch {
	case err == nil:
	case req.Trigger == nil && !req.again:
		return nil, err
	default: // the run of a trigger, or a repeated one, is worth more than its status
		s.cfg.Logger.Error().Err(err).Str("account", account).Str("run", id).Msg("the state of a run is not reported to its Git provider")
		target = &commitTarget{Context: req.CommitStatus.Context, Problem: clip(err.Error(), mostReason)}
	}
	return live, live.setFacts(facts{Name: p.Name, User: req.User, Labels: req.Labels, Stored: req.Pipeline, StoredVersion: req.stored, Commit: target})
}

// nameRepository sets codebase.repoUrl of a run that was started without it.
func (s *Service) nameRepository(ctx context.Context, run *engine.Run, p *definition.Pipeline) {
	c := p.Codebase
	if c == nil || run.Codebase["repoUrl"] != nil || c.Connector.Dynamic() || c.Repository.Dynamic() {
		return
	}
	table, err := s.tableFor(ctx, run.Account)
	if err != nil {
		return // a run starts without its manager too
	}
	if address := table.RepositoryURL(c.Connector.Text(), c.Repository.Text()); address != "" {
		values := maps.Clone(run.Codebase)
		if values == nil {
			values = engine.Values{}
		}
		values["repoUrl"] = address
		run.Codebase = values
	}
}

func (r *request) inputSets() []Source {
	if r.Pipeline != "" {
		return r.sets
	}
	return inputSets(r.InputSets)
}

// inputSets names input sets by their place.
func inputSets(texts []string) []Source {
	var all []Source
	for i, text := range texts {
		all = append(all, Source{Name: "input_sets[" + strconv.Itoa(i) + "]", Text: []byte(text)})
	}
	return all
}

func encodeNodes(state *engine.State) ([]store.Node, error) {
	nodes := make([]store.Node, 0, len(state.Nodes))
	for path, n := range state.Nodes {
		data, err := json.Marshal(n)
		if err != nil {
			return nil, fmt.Errorf("encoding node %s: %w", path, err)
		}
		nodes = append(nodes, store.Node{Path: path, Data: data})
	}
	return nodes, nil
}

// Run returns a run with its nodes. It fails with [ErrNotFound].
func (s *Service) Run(ctx context.Context, account, id string) (api.Run, error) {
	row, nodes, err := s.rows(ctx, account, id)
	if err != nil {
		return api.Run{}, err
	}
	run, err := s.tree(ctx, row, nodes)
	if err == nil {
		run.Statuses, err = s.reported(ctx, row)
	}
	return run, err
}

// tree returns the API's form of a run with its nodes.
func (s *Service) tree(ctx context.Context, row *store.Run, nodes []store.Node) (api.Run, error) {
	fixed, err := s.constant(ctx, row)
	var live *liveRun
	if err == nil {
		live, err = s.cache.decode(row, fixed, nodes)
	}
	if unreadable := (brokenError{}); err != nil && !errors.As(err, &unreadable) {
		return api.Run{}, err
	}
	if err != nil { // its definition is not one of this version
		return undecoded(row, nodes), nil
	}
	return detail(live), nil
}

// Wait returns a run when it has ended, or when ctx ends with the context's error.
func (s *Service) Wait(ctx context.Context, account, id string) (api.Run, error) {
	_, err := s.await(ctx, account, id, func(run *store.Run) bool { return !run.Ended.IsZero() })
	if err != nil {
		return api.Run{}, err
	}
	return s.Run(ctx, account, id)
}

// hold returns a run when it has ended, or after a time.
func (s *Service) hold(ctx context.Context, account, id string, wait time.Duration) (api.Run, error) {
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if run, err := s.Wait(waiting, account, id); waiting.Err() == nil {
			return run, err
		}
	}
	return s.Run(ctx, account, id)
}

// Definition returns the YAML that a run was started with. It fails with [ErrNotFound].
func (s *Service) Definition(ctx context.Context, account, id string) ([]byte, error) {
	_, doc, err := s.document(ctx, account, id)
	if err != nil {
		return nil, err
	}
	return doc.Source.Text, nil
}
