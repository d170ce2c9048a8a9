package pipeline

import (
	"encoding/json"

	"github.com/delegate-io/dlite/manager/api"
)

// Limits of the report of a step, because a run keeps the reports of all its steps. The numbers of tests are not limited.
const (
	maxReportTests    = 20
	maxReportText     = 300
	maxReportArtifact = 4 << 10
)

// report is the part of a step's result that the engine keeps without a look at it.
type report struct {
	Tests    *api.TestSummary `json:"tests,omitempty"`
	Artifact []byte           `json:"artifact,omitempty"`
	// ArtifactBytes is the size of an artifact file that is left out.
	ArtifactBytes int `json:"artifact_bytes,omitempty"`
}

// reportOf returns the report of a step that has ended, or nil.
func reportOf(part *api.StepState) json.RawMessage {
	r := report{Artifact: part.Artifact}
	if len(r.Artifact) > maxReportArtifact {
		r.Artifact, r.ArtifactBytes = nil, len(r.Artifact)
	}
	if part.Tests != nil {
		sum := *part.Tests
		sum.Failures, sum.Problems = nil, nil
		for _, f := range part.Tests.Failures[:min(len(part.Tests.Failures), maxReportTests)] {
			sum.Failures = append(sum.Failures, api.TestFailure{Suite: clip(f.Suite, maxReportText), Class: clip(f.Class, maxReportText), Name: clip(f.Name, maxReportText), Message: clip(f.Message, maxReportText)})
		}
		for _, p := range part.Tests.Problems[:min(len(part.Tests.Problems), maxReportTests)] {
			sum.Problems = append(sum.Problems, clip(p, maxReportText))
		}
		r.Tests = &sum
	}
	if r.Tests == nil && len(part.Artifact) == 0 {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil // its members are texts and numbers
	}
	return text
}

// readReport returns a report, which is empty for a step without one.
func readReport(text json.RawMessage) (r report) {
	if len(text) > 0 && json.Unmarshal(text, &r) != nil {
		return report{}
	}
	return r
}
