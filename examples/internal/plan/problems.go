package plan

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// WithPlaces adds the places of the problems of a pipeline to an error.
func WithPlaces(err error, req api.RunRequest) error {
	var problems pipeline.Problems
	if !errors.As(err, &problems) {
		return err
	}
	return fmt.Errorf("the pipeline has errors\n%s", problems.Render(Sources(req)...))
}

// Sources returns the texts of a request, by the names that problems have.
func Sources(req api.RunRequest) []pipeline.Source {
	all := []pipeline.Source{{Name: req.Name, Text: []byte(req.YAML)}}
	for i, text := range req.InputSets {
		all = append(all, pipeline.Source{Name: "input_sets[" + strconv.Itoa(i) + "]", Text: []byte(text)})
	}
	return all
}
