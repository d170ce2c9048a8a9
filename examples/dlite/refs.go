package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// object is a run or a stage.
type object struct {
	run   *api.Run
	stage *api.Stage
}

// find returns the client, and the run or the stage of an id.
func (p *program) find(ref string) (*api.Client, object, error) {
	client, err := p.client()
	if err != nil {
		return nil, object{}, err
	}
	o, err := find(p.ctx, client, ref)
	return client, o, err
}

// find returns the run or the stage of an id. run/ID and stage/ID, the names that -o name prints, select the kind.
func find(ctx context.Context, c *api.Client, ref string) (object, error) {
	kind, id, ok := strings.Cut(ref, "/")
	if !ok || kind != "run" && kind != "stage" {
		kind, id = "", ref
	}
	if kind != "stage" {
		run, err := c.Run(ctx, id)
		if err == nil {
			return object{run: &run}, nil
		}
		if kind == "run" || !api.IsStatus(err, http.StatusNotFound) {
			return object{}, err
		}
	}
	stage, err := c.Stage(ctx, id)
	if api.IsStatus(err, http.StatusNotFound) { // the history has stages that the manager has forgotten
		if past, known := c.EndedStage(ctx, id); known == nil {
			return object{stage: &past}, nil
		}
	}
	if api.IsStatus(err, http.StatusNotFound) && kind == "" {
		return object{}, &api.Error{Status: http.StatusNotFound, Message: "there is neither a run nor a stage " + id}
	}
	return object{stage: &stage}, err
}

// runID returns the id of a run.
func runID(ref string) string { return strings.TrimPrefix(ref, "run/") }

// part is a line of a run or a stage: one of its stages, groups or steps.
type part struct {
	Label, Status, Reason string
	Cell                  string // values of the matrix, such as "go=1.26, os=alpine"
	Started, Ended        time.Time
	Key                   string // of its log
	step                  bool
	depth                 int
	mayLackLog            bool // it may have ended before its log began
}

// parts lists the parts of an object in their order.
func (o object) parts() []part {
	if o.stage != nil {
		return partsOfStage(o.stage)
	}
	return partsOfRun(o.run)
}

func partsOfStage(s *api.Stage) []part {
	all := append([]api.StepState{s.Init}, s.Steps...)
	all = append(all, s.Cleanup)
	var out []part
	for i := range all {
		st := &all[i]
		reason := st.Error
		if st.ExitCode != 0 {
			reason = strings.TrimSpace(reason + " (exit code " + strconv.Itoa(st.ExitCode) + ")")
		}
		out = append(out, part{
			Label: st.ID, Status: string(st.Status), Reason: reason, Started: st.StartedAt, Ended: st.EndedAt,
			Key: st.LogKey, step: true, mayLackLog: i == 0 || i == len(all)-1 || st.FailureKind != "" && st.FailureKind != "exit_code",
		})
	}
	return out
}

func partsOfRun(r *api.Run) []part {
	var out []part
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Kind == "pipeline" || n.Kind == "strategy" && n.Status == "SUCCEEDED" {
			continue
		}
		stage, below, inside := strings.Cut(n.Path, ".spec.execution.steps.")
		p := part{
			Label: strings.TrimPrefix(stage, "pipeline.stages."), Status: n.Status, Reason: n.Reason,
			Started: n.StartedAt, Ended: n.EndedAt, Key: n.LogKey, step: n.Kind == "step", mayLackLog: n.ExitCode == nil,
		}
		for _, axis := range slices.Sorted(maps.Keys(n.Matrix)) {
			p.Cell += fmt.Sprintf(", %s=%v", axis, n.Matrix[axis])
		}
		p.Cell = strings.TrimPrefix(p.Cell, ", ")
		if inside {
			below = strings.ReplaceAll(below, ".steps.", "/")
			p.Label, p.depth = p.Label+"/"+below, 1+strings.Count(below, "/")
		}
		out = append(out, p)
	}
	return out
}

// name returns the name of a part for a person, with the values of its matrix.
func (p part) name() string {
	if p.Cell == "" {
		return p.Label
	}
	return p.Label + " (" + p.Cell + ")"
}

// result returns the status of an object, why, and its exit code. A code below 0 means that it has not
// ended.
func (o object) result() (status, reason string, code int) {
	ended := false
	if o.stage != nil {
		status, reason, ended = string(o.stage.Status), o.stage.Error, o.stage.Ended()
		if !ended {
			reason = o.stage.Reason
		}
	} else {
		status, reason, ended = o.run.Status, o.run.Reason, o.run.Ended()
	}
	switch {
	case !ended:
		return status, reason, -1
	case status == "SUCCESS" || status == "SUCCEEDED" || status == "IGNORE_FAILED" || status == "SKIPPED":
		return status, reason, exitOK
	case strings.HasPrefix(status, "ABORTED"):
		return status, reason, exitAborted
	}
	return status, reason, exitFailed
}

func (o object) name() string {
	if o.stage != nil {
		return "stage/" + o.stage.ID
	}
	return "run/" + o.run.ID
}

// value is what -o json prints.
func (o object) value() any {
	if o.stage != nil {
		return o.stage
	}
	return o.run
}
