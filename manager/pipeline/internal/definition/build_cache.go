package definition

import "strings"

// The types of the steps that a stage with a cache gets.
const (
	RestoreStageCache = "RestoreStageCache"
	SaveStageCache    = "SaveStageCache"
)

// stageCache adds a step at the begin and one at the end of a stage with caching. Neither can fail the
// stage.
func (r *reader) stageCache(s *Stage, at *path) {
	c := s.Caching
	if c == nil || c.Kind != Map || len(c.Fields) == 0 || len(s.Steps) == 0 {
		return
	}
	enabled := c.Get("enabled")
	if isInput(enabled) || strings.EqualFold(enabled.Text(), "false") {
		return
	}
	if !r.types[SaveStageCache] {
		r.warn(s.Spec.field("caching").At, "ignored-key", at, "caching is ignored", "the settings of the pipeline service have no cache: add cache: {bucket: NAME} to them")
		return
	}
	policy := c.Get("policy").Text()
	if policy != "push" {
		restore := cacheStep(c, RestoreStageCache, "restore_stage_cache", "Restore the cache")
		s.Steps = append([]StepItem{restore}, s.Steps...)
	}
	if policy != "pull" {
		s.Steps = append(s.Steps, cacheStep(c, SaveStageCache, "save_stage_cache", "Save the cache"))
	}
}

func cacheStep(c *Node, kind, identifier, name string) StepItem {
	at := c.Position
	step := &Step{
		Position: at, Identifier: identifier, Name: name, Type: kind, Spec: &Node{Position: at, Kind: Map},
		Timeout:           &Node{Position: at, Kind: Scalar, Value: "1h"},
		FailureStrategies: []*FailureStrategy{{Position: at, Errors: []string{"AllErrors"}, Action: &Action{Position: at, Type: "Ignore"}}},
	}
	for _, f := range c.Fields {
		if f.Key != "enabled" {
			step.Spec.Fields = append(step.Spec.Fields, f)
		} else if f.Value.Dynamic() {
			step.When = &When{Position: f.At, Status: "Success", Condition: f.Value}
		}
	}
	return StepItem{Position: at, Step: step}
}
