package drivertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// ReportVariable is an environment variable with a directory. If it is set, [Run]
// writes a [Report] to <directory>/<name>.json for each target that has a name.
const ReportVariable = "DLITE_CONFORMANCE_DIR"

// Report is the result of a run of the suite.
type Report struct {
	Name  string        `json:"name"`
	Cases []CaseOutcome `json:"cases"`
}

// CaseOutcome is the result of a case.
type CaseOutcome struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
	// Passed is false for a case that failed or was not run.
	Passed bool `json:"passed"`
	// Lacks are the missing capabilities because of which the case did not run.
	Lacks []Capability `json:"lacks,omitempty"`
}

// recorder collects the outcomes of a run.
type recorder struct {
	mu       sync.Mutex
	outcomes map[string]CaseOutcome // by name; guarded by mu
}

func (r *recorder) record(o CaseOutcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[o.Name] = o
}

// write writes the report if ReportVariable is set and the target has a name.
func (r *recorder) write(tb testing.TB, name string) {
	dir := os.Getenv(ReportVariable)
	if dir == "" || name == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	report := Report{Name: name}
	for _, c := range cases() {
		o, ok := r.outcomes[c.name]
		if !ok {
			o = CaseOutcome{Name: c.name, Rule: c.rule}
		}
		report.Cases = append(report.Cases, o)
	}
	b, err := json.MarshalIndent(report, "", "\t")
	if assert.NoError(tb, err) {
		assert.NoError(tb, os.WriteFile(filepath.Join(dir, name+".json"), b, 0o600))
	}
}
