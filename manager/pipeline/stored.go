package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// The kinds of stored objects.
const (
	kindPipeline = "pipeline"
	kindTrigger  = "trigger"
)

const (
	mostInputSets = 50
	mostPipelines = 1000
	// mostPipelineBytes bounds the stored pipelines of an account, with their input sets.
	mostPipelineBytes = 64 << 20
	// pageOfObjects is the size of a page of stored pipelines or triggers.
	pageOfObjects = 50
)

// SetPipeline adds a stored pipeline, or replaces the one with its id. Runs keep the pipeline that they were started
// with. It fails with [ErrInvalid], with [Problems] if the pipeline or an input set has errors, and with
// [ErrConflict].
func (s *Service) SetPipeline(ctx context.Context, account string, p api.Pipeline) (api.Pipeline, error) {
	problems, err := s.checkStored(&p)
	if err != nil {
		return api.Pipeline{}, err
	}
	wanted := p.Version
	p.Version, p.UpdatedAt, p.Problems = 0, time.Time{}, nil
	data, err := json.Marshal(p)
	if err != nil {
		return api.Pipeline{}, fmt.Errorf("encoding pipeline %s: %w", p.ID, err)
	}
	object := &store.Object{Account: account, Kind: kindPipeline, ID: p.ID, Updated: now(), Data: data}
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		if err := expectVersion(tx, object, wanted); err != nil {
			return err
		}
		return putObject(tx, object, store.Room{Count: mostPipelines, Bytes: mostPipelineBytes})
	})
	if err != nil {
		return api.Pipeline{}, err
	}
	p.Version, p.UpdatedAt, p.Problems = object.Version, object.Updated, shownProblems(problems)
	return p, nil
}

// now is the time with the precision of the database.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// expectVersion fails with [ErrConflict] if an object has another version than the caller knows.
func expectVersion(tx *store.Tx, o *store.Object, wanted int64) error {
	if wanted == 0 {
		return nil
	}
	old, err := tx.Object(o.Account, o.Kind, o.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%w: %s %s does not exist: leave version out to add it", ErrConflict, o.Kind, o.ID)
	case err != nil:
		return err
	case old.Version != wanted:
		return fmt.Errorf("%w: %s %s has version %d and not %d: read it again", ErrConflict, o.Kind, o.ID, old.Version, wanted)
	}
	return nil
}

func putObject(tx *store.Tx, o *store.Object, room store.Room) error {
	err := tx.Put(o, room)
	if errors.Is(err, store.ErrFull) {
		return fmt.Errorf("%w: %s %s: the account may have %d of them with %d bytes together: delete one", ErrConflict, o.Kind, o.ID, room.Count, room.Bytes)
	}
	return err
}

// checkStored returns the warnings about a pipeline and its input sets.
func (s *Service) checkStored(p *api.Pipeline) (Problems, error) {
	switch {
	case !runName.MatchString(p.ID):
		return nil, fmt.Errorf("%w: id may have 64 letters, digits, _ and -", ErrInvalid)
	case p.YAML == "":
		return nil, fmt.Errorf("%w: yaml is empty", ErrInvalid)
	case len(p.InputSets) > mostInputSets:
		return nil, fmt.Errorf("%w: input_sets has %d members; it may have %d", ErrInvalid, len(p.InputSets), mostInputSets)
	}
	if err := checkText("name", p.Name, 256); err != nil {
		return nil, err
	}
	problems := Lint(api.RunRequest{YAML: p.YAML, Name: fileOf(p), SkipOtherStages: p.SkipOtherStages}, s.cfg.Settings, s.cfg.Templates)
	for _, name := range slices.Sorted(maps.Keys(p.InputSets)) {
		if !runName.MatchString(name) {
			return nil, fmt.Errorf("%w: input_sets.%s: a name may have 64 letters, digits, _ and -", ErrInvalid, name)
		}
		doc := document{
			Source: Source{Name: fileOf(p), Text: []byte(p.YAML)}, InputSets: []Source{inputSetOf(p, name)}, SkipOtherStages: p.SkipOtherStages, StepTypes: stepTypes(s.cfg.Settings),
		}
		_, found := doc.read(s.cfg.Templates, true)
		for _, problem := range found { // the problems of the pipeline itself are known
			if problem.File != doc.Source.Name {
				problems = append(problems, problem)
			}
		}
	}
	if problems.Errors() {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, problems)
	}
	return problems, nil
}

func fileOf(p *api.Pipeline) string {
	if p.Name != "" {
		return p.Name
	}
	return p.ID + ".yaml"
}

func inputSetOf(p *api.Pipeline, name string) Source {
	return Source{Name: "input_sets." + name, Text: []byte(p.InputSets[name])}
}

// StoredPipeline returns a stored pipeline. It fails with [ErrNotFound].
func (s *Service) StoredPipeline(ctx context.Context, account, id string) (api.Pipeline, error) {
	var p api.Pipeline
	o, err := s.object(ctx, account, kindPipeline, id, &p)
	if err != nil {
		return api.Pipeline{}, err
	}
	p.Version, p.UpdatedAt = o.Version, o.Updated
	return p, nil
}

// object reads an object into v.
func (s *Service) object(ctx context.Context, account, kind, id string, v any) (*store.Object, error) {
	if !runName.MatchString(id) { // a database may refuse it
		return nil, fmt.Errorf("%s %q: %w", kind, id, ErrNotFound)
	}
	o, err := s.store.Object(ctx, account, kind, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%s %s: %w", kind, id, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(o.Data, v); err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", kind, id, err)
	}
	return o, nil
}

// StoredPipelines lists stored pipelines by their ids, without their YAML. Next is the id after which the next page
// begins, or empty.
func (s *Service) StoredPipelines(ctx context.Context, account, after string) (page []api.Pipeline, next string, err error) {
	if err := checkPage(after); err != nil {
		return nil, "", err
	}
	rows, err := s.store.Heads(ctx, account, kindPipeline, after, pageOfObjects+1)
	if err != nil {
		return nil, "", err
	}
	page = []api.Pipeline{}
	for i := range rows[:min(len(rows), pageOfObjects)] {
		page = append(page, api.Pipeline{ID: rows[i].ID, Version: rows[i].Version, UpdatedAt: rows[i].Updated})
	}
	if len(rows) > pageOfObjects {
		next = rows[pageOfObjects-1].ID
	}
	return page, next, nil
}

func checkPage(after string) error {
	if after != "" && !runName.MatchString(after) {
		return fmt.Errorf("%w: page is not the member next of a list", ErrInvalid)
	}
	return nil
}

// DeletePipeline removes a stored pipeline. Its runs continue. Triggers that name it start nothing any more. It fails
// with [ErrNotFound].
func (s *Service) DeletePipeline(ctx context.Context, account, id string) error {
	return s.deleteObject(ctx, account, kindPipeline, id)
}

func (s *Service) deleteObject(ctx context.Context, account, kind, id string) error {
	if !runName.MatchString(id) {
		return fmt.Errorf("%s %q: %w", kind, id, ErrNotFound)
	}
	err := s.store.Update(ctx, func(tx *store.Tx) error { return tx.Delete(account, kind, id) })
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%s %s: %w", kind, id, ErrNotFound)
	}
	return err
}

// resolve replaces the name of a stored pipeline in a request by its YAML.
func (s *Service) resolve(ctx context.Context, account string, r *request) error {
	switch {
	case r.Pipeline == "" && len(r.InputSetNames) > 0:
		return fmt.Errorf("%w: input_set_names is for a stored pipeline: set pipeline, or use input_sets", ErrInvalid)
	case r.Pipeline == "":
		return nil
	case r.YAML != "":
		return fmt.Errorf("%w: yaml and pipeline are both set: use one of them", ErrInvalid)
	case s.store == nil: // Explain has no database
		return fmt.Errorf("%w: pipeline: stored pipelines are not available here: use yaml", ErrInvalid)
	}
	p, err := s.StoredPipeline(ctx, account, r.Pipeline)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: pipeline: there is no stored pipeline %q", ErrInvalid, r.Pipeline)
	}
	if err != nil {
		return err
	}
	r.YAML, r.Name, r.SkipOtherStages, r.stored = p.YAML, fileOf(&p), r.SkipOtherStages || p.SkipOtherStages, p.Version
	var sets []Source
	for _, name := range r.InputSetNames {
		if _, ok := p.InputSets[name]; !ok {
			return fmt.Errorf("%w: input_set_names: pipeline %s has no input set %q", ErrInvalid, r.Pipeline, name)
		}
		sets = append(sets, inputSetOf(&p, name))
	}
	r.sets = append(sets, inputSets(r.InputSets)...)
	return nil
}
