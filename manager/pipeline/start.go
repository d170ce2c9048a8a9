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

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Request starts a run.
type Request struct {
	// ID is unique among the runs of the account. If it is empty, the service chooses one. A
	// second request with the id returns the first run.
	ID string `json:"id,omitempty"`
	// YAML is the pipeline, and Name the name of its file, for messages.
	YAML string `json:"yaml"`
	Name string `json:"name,omitempty"`
	// Pipeline is the id of a stored pipeline, which replaces YAML and Name. InputSetNames are input sets that are
	// stored with it. They are merged before InputSets.
	Pipeline      string   `json:"pipeline,omitempty"`
	InputSetNames []string `json:"input_set_names,omitempty"`
	// InputSets are the YAML of input sets, merged in their order. Inputs are values by path, for example
	// pipeline.variables.tag, and have precedence.
	InputSets []string          `json:"input_sets,omitempty"`
	Inputs    map[string]string `json:"inputs,omitempty"`
	// Stages selects stages by identifier. Empty means all.
	Stages []string `json:"stages,omitempty"`
	// From selects a stage, those beside it in a parallel block, and all stages after it. It cannot be
	// combined with Stages, nor with dependsOn in the pipeline.
	From string `json:"from,omitempty"`
	// SkipOtherStages leaves out stages that are not CI stages. Otherwise they are errors.
	SkipOtherStages bool `json:"skip_other_stages,omitempty"`
	// Cause is MANUAL (the default), WEBHOOK, WEBHOOK_CUSTOM or SCHEDULER_CRON. User and Email
	// name the person behind it.
	Cause string `json:"cause,omitempty"`
	User  string `json:"user,omitempty"`
	Email string `json:"email,omitempty"`
	// Branch and Labels can be searched.
	Branch string            `json:"branch,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Trigger and Codebase are the values of trigger.* and codebase.*. They are never evaluated.
	Trigger  map[string]any `json:"trigger,omitempty"`
	Codebase map[string]any `json:"codebase,omitempty"`
	// Variables are the values of variable.*, with the members org and account.
	Variables map[string]any `json:"variables,omitempty"`

	// templates are those of an earlier run with the same definition.
	templates map[string]Source
	// sets are all input sets of a request for a stored pipeline, and stored is its version.
	sets   []Source
	stored int64
}

// runName matches ids of runs.
var runName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// causes are the values of Request.Cause.
var causes = map[string]bool{"": true, "MANUAL": true, "WEBHOOK": true, "WEBHOOK_CUSTOM": true, "SCHEDULER_CRON": true}

func (r *Request) check() error {
	const mostLabels, mostText = 20, 256
	switch {
	case r.ID != "" && !runName.MatchString(r.ID):
		return fmt.Errorf("%w: id may have 64 letters, digits, _ and -", ErrInvalid)
	case strings.TrimSpace(r.YAML) == "":
		return fmt.Errorf("%w: yaml is empty", ErrInvalid)
	case !causes[r.Cause]:
		return fmt.Errorf("%w: cause is %q: use MANUAL, WEBHOOK, WEBHOOK_CUSTOM or SCHEDULER_CRON", ErrInvalid, r.Cause)
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
func (s *Service) Start(ctx context.Context, account string, req Request) (Run, error) {
	live, err := s.prepare(ctx, account, &req)
	if err != nil {
		return Run{}, err
	}
	var started Run
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
		return Run{}, err
	case err != nil:
		return Run{}, err
	}
	s.started(live)
	return started, nil
}

// started keeps the state of a run whose transaction has committed.
func (s *Service) started(live *preparedRun) {
	s.cache.put(runKey{live.run.Account, live.run.ID}, &live.liveRun)
	s.cfg.Logger.Info().Str("account", live.run.Account).Str("run", live.run.ID).Str("pipeline", live.run.Pipeline).Int64("number", live.run.Number).Msg("run started")
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
	if err := tx.Create(p.run, nodes); err != nil {
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

func (s *Service) prepare(ctx context.Context, account string, req *Request) (*preparedRun, error) {
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
	now := time.Now().UTC().Truncate(time.Millisecond)
	doc := &document{
		Source: Source{Name: name, Text: []byte(req.YAML)}, InputSets: req.inputSets(), Inputs: req.Inputs, SkipOtherStages: req.SkipOtherStages, Templates: req.templates,
		StepTypes: stepTypes(s.cfg.Settings),
		Run: engine.Run{
			ID: id, Account: account, StartedAt: now, TriggerType: cause, User: req.User, Email: req.Email,
			Trigger: req.Trigger, Codebase: req.Codebase, Variables: req.Variables, Stages: req.Stages,
		},
	}
	p, problems := doc.read(s.cfg.Templates, false)
	if p == nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, problems)
	}
	selected, err := selectStages(p, req)
	if err != nil {
		return nil, err
	}
	doc.Run.Stages = selected
	machine, err := engine.New(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	run := &store.Run{
		Account: account, ID: id, Pipeline: p.Identifier, Branch: req.Branch, Cause: cause, Created: now, Labels: req.Labels,
		Search: strings.Join([]string{p.Identifier, p.Name, req.Branch, req.User}, "\n"),
	}
	live := &preparedRun{liveRun: liveRun{run: run, machine: machine}, doc: doc, pipeline: p, maxActive: s.cfg.MaxActive}
	return live, live.setFacts(facts{Name: p.Name, User: req.User, Labels: req.Labels, Stored: req.Pipeline, StoredVersion: req.stored})
}

func (r *Request) inputSets() []Source {
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
func (s *Service) Run(ctx context.Context, account, id string) (Run, error) {
	row, nodes, err := s.store.Run(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) {
		return Run{}, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Run{}, err
	}
	definition, err := s.definition(ctx, row)
	if err != nil {
		return Run{}, err
	}
	live, err := decode(row, definition, nodes)
	if err != nil { // its definition is not one of this version
		return undecoded(row, nodes), nil
	}
	return detail(live), nil
}

// Wait returns a run when it has ended, or when ctx ends with the context's error.
func (s *Service) Wait(ctx context.Context, account, id string) (Run, error) {
	_, err := s.await(ctx, account, id, func(run *store.Run) bool { return !run.Ended.IsZero() })
	if err != nil {
		return Run{}, err
	}
	return s.Run(ctx, account, id)
}

// hold returns a run when it has ended, or after a time.
func (s *Service) hold(ctx context.Context, account, id string, wait time.Duration) (Run, error) {
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
