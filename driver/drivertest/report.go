package drivertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// reportVariable is an environment variable with the directory of the reports.
const reportVariable = "DLITE_CONFORMANCE_DIR"

// report is the result of a run of the suite.
type report struct {
	Name  string        `json:"name"`
	Cases []caseOutcome `json:"cases"`
}

// caseOutcome is the result of a case.
type caseOutcome struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
	// Passed is false for a case that failed or was not run.
	Passed bool `json:"passed"`
	// NotRun means that the flag -run excluded the case.
	NotRun bool `json:"not_run,omitempty"`
	// Lacks are the missing capabilities because of which the case did not run.
	Lacks []string `json:"lacks,omitempty"`
}

// recorder collects the outcomes of a run.
type recorder struct {
	mu       sync.Mutex
	outcomes map[string]caseOutcome // by name; guarded by mu
}

func (r *recorder) record(o caseOutcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[o.Name] = o
}

// write writes the report if reportVariable is set and the target has a name.
func (r *recorder) write(tb testing.TB, name string) {
	dir := os.Getenv(reportVariable)
	if dir == "" || name == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := report{Name: name}
	for _, c := range cases() {
		o, ok := r.outcomes[c.name]
		if !ok {
			o = caseOutcome{Name: c.name, Rule: c.rule, NotRun: true}
		}
		all.Cases = append(all.Cases, o)
	}
	b, err := json.MarshalIndent(all, "", "\t")
	if assert.NoError(tb, err) {
		assert.NoError(tb, os.WriteFile(filepath.Join(dir, name+".json"), b, 0o600))
	}
}
