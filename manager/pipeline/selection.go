package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// selectStages returns the identifiers of the stages that a request selects, or nil for all.
func selectStages(p *definition.Pipeline, req *api.RunRequest) ([]string, error) {
	var known []string
	from := -1
	for _, item := range p.Stages {
		before := len(known)
		if item.Stage != nil {
			known = append(known, item.Stage.Identifier)
		}
		for _, st := range item.Parallel {
			known = append(known, st.Identifier)
		}
		if slices.Contains(known[before:], req.From) {
			from = before
		}
	}
	unknown := func(field, id string) error {
		return fmt.Errorf("%w: %s: the pipeline has no stage %q: its stages are %s", ErrInvalid, field, id, strings.Join(known, ", "))
	}
	for _, id := range req.Stages {
		if !slices.Contains(known, id) {
			return nil, unknown("stages", id)
		}
	}
	switch {
	case req.From == "":
		return req.Stages, nil
	case len(req.Stages) > 0:
		return nil, fmt.Errorf("%w: from cannot be combined with stages", ErrInvalid)
	case p.Graph:
		return nil, fmt.Errorf("%w: from: the stages of this pipeline are ordered by dependsOn: use stages", ErrInvalid)
	case from < 0:
		return nil, unknown("from", req.From)
	}
	return known[from:], nil
}
